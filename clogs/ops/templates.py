"""Proposal templates: what is a valid one, and what it asks for. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from clogs.ops.refusals import check_size, too_long, violates
from ocean import Refuse

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = get_args(Risk)
MOST_STEPS = 100
MOST_NAME_BYTES = 128
MOST_TEMPLATE_BYTES = 256 * 1024
DEFAULT_EXECUTOR = "openclaw"
FIELDS = ("title", "description", "risk_level", "steps")
STEP_FIELDS = ("kind", "executor", "params", "max_retries")


def checked_template(template: Any) -> dict[str, Any]:
    """The template, if missions can be made of it; otherwise the refusal names the place."""
    if not isinstance(template, Mapping):
        raise violates(f"p_template is a JSON object, got {type(template).__name__}")
    for name in template:
        if name not in FIELDS:
            raise violates(f"template has no field {name!r}; it has {', '.join(FIELDS)}")
    for name in ("title", "description"):
        if not isinstance(template.get(name, ""), str):
            raise violates(f"template.{name} is a text")
    if template.get("risk_level") not in (None, *RISKS):
        raise violates(f"template.risk_level is one of {', '.join(RISKS)}, got {template['risk_level']!r}")
    steps = template.get("steps")
    if not isinstance(steps, list) or not steps:
        raise violates("template.steps is an array of at least one step")
    if len(steps) > MOST_STEPS:
        raise violates(f"template.steps has {len(steps)} steps, over {MOST_STEPS}; propose several missions")
    for index, step in enumerate(steps):
        _check_step(step, f"template.steps[{index}]")
    check_size(template, "template", MOST_TEMPLATE_BYTES)
    return dict(template)


def _check_step(step: Any, place: str) -> None:
    if not isinstance(step, Mapping):
        raise violates(f"{place} is a JSON object")
    for name in step:
        if name not in STEP_FIELDS:
            raise violates(f"{place} has no field {name!r}; it has {', '.join(STEP_FIELDS)}")
    for name in ("kind", "executor"):
        if name == "executor" and step.get(name) is None:
            continue
        if not isinstance(step.get(name), str) or not step[name]:
            raise violates(f"{place}.{name} is a text that is not empty")
        if len(step[name].encode()) > MOST_NAME_BYTES:
            raise too_long(f"{place}.{name}", MOST_NAME_BYTES)
    if not isinstance(step.get("params", {}), Mapping):
        raise violates(f"{place}.params is a JSON object")
    retries = step.get("max_retries")
    if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 1):
        raise violates(f"{place}.max_retries is a whole number of at least 1, or null for no limit")


def is_valid(template: Any) -> bool:
    try:
        checked_template(template)
    except Refuse:
        return False
    return True


def step_kinds(template: Any) -> list[str] | None:
    """The kinds of its steps, each once, in order; None if the template is none."""
    if not isinstance(template, Mapping):
        return None
    steps = template.get("steps", [])
    if not isinstance(steps, list):
        return None
    kinds = [step["kind"] for step in steps if isinstance(step, Mapping) and isinstance(step.get("kind"), str)]
    return list(dict.fromkeys(kinds))


def risk_of(template: Mapping[str, Any]) -> Risk:
    """What nobody has called safe is not."""
    risk = template.get("risk_level")
    return risk if risk in RISKS else "high"


def executor_of(step: Mapping[str, Any]) -> str:
    return step.get("executor") or DEFAULT_EXECUTOR
