"""Checks of what callers send: templates, proposals and agent events; and what a template contains. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from clogs.ops.errors import check_size, too_long, violates
from clogs.ops.patterns import SOURCES
from clogs.ops.records import Row
from ocean import Refuse

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = get_args(Risk)
MOST_STEPS = 100
MOST_NAME_BYTES = 128
MOST_TEMPLATE_BYTES = 256 * 1024
DEFAULT_EXECUTOR = "openclaw"
FIELDS = ("title", "description", "risk_level", "steps")
STEP_FIELDS = ("kind", "executor", "params", "max_retries")
MOST_KEY_BYTES = 200
EVENT_FIELDS = ("type", "data", "mission_id", "dedupe_key")
MOST_TYPE_BYTES = 200
MOST_DATA_BYTES = 256 * 1024


def checked_template(template: Any) -> dict[str, Any]:
    """Return the template if a mission can be made from it, or raise an error that names the wrong field."""
    if not isinstance(template, Mapping):
        raise violates(f"p_template must be a JSON object, got {type(template).__name__}")
    for name in template:
        if name not in FIELDS:
            raise violates(f"template must not have the field {name!r}; allowed: {', '.join(FIELDS)}")
    for name in ("title", "description"):
        if not isinstance(template.get(name, ""), str):
            raise violates(f"template.{name} must be a text")
    if template.get("risk_level") not in (None, *RISKS):
        raise violates(f"template.risk_level must be one of {', '.join(RISKS)}, got {template['risk_level']!r}")
    steps = template.get("steps")
    if not isinstance(steps, list) or not steps:
        raise violates("template.steps must be an array of at least one step")
    if len(steps) > MOST_STEPS:
        raise violates(
            f"template.steps must have at most {MOST_STEPS} steps, got {len(steps)}; propose several missions"
        )
    for index, step in enumerate(steps):
        _check_step(step, f"template.steps[{index}]")
    check_size(template, "template", MOST_TEMPLATE_BYTES)
    return dict(template)


def _check_step(step: Any, place: str) -> None:
    if not isinstance(step, Mapping):
        raise violates(f"{place} must be a JSON object")
    for name in step:
        if name not in STEP_FIELDS:
            raise violates(f"{place} must not have the field {name!r}; allowed: {', '.join(STEP_FIELDS)}")
    for name in ("kind", "executor"):
        if name == "executor" and step.get(name) is None:
            continue
        if not isinstance(step.get(name), str) or not step[name]:
            raise violates(f"{place}.{name} must be a text that is not empty")
        if len(step[name].encode()) > MOST_NAME_BYTES:
            raise too_long(f"{place}.{name}", MOST_NAME_BYTES)
    if not isinstance(step.get("params", {}), Mapping):
        raise violates(f"{place}.params must be a JSON object")
    retries = step.get("max_retries")
    if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 1):
        raise violates(f"{place}.max_retries must be a whole number of at least 1, or null for no limit")


def is_valid(template: Any) -> bool:
    try:
        checked_template(template)
    except Refuse:
        return False
    return True


def step_kinds(template: Any) -> list[str] | None:
    """Return the kinds of the steps, each once, in order; None for an invalid template."""
    if not isinstance(template, Mapping):
        return None
    steps = template.get("steps", [])
    if not isinstance(steps, list):
        return None
    kinds = [step["kind"] for step in steps if isinstance(step, Mapping) and isinstance(step.get("kind"), str)]
    return list(dict.fromkeys(kinds))


def risk_of(template: Mapping[str, Any]) -> Risk:
    """Return the risk of a template; one without a risk level counts as high."""
    risk = template.get("risk_level")
    return risk if risk in RISKS else "high"


def executor_of(step: Mapping[str, Any]) -> str:
    return step.get("executor") or DEFAULT_EXECUTOR


def checked_proposal(dedupe_key: Any, source: Any, template: Any) -> Row:
    if source not in SOURCES:
        raise violates(
            f'value {source!r} violates check constraint "ops_mission_proposals_source_check": '
            f"use one of {', '.join(SOURCES)}"
        )
    return {"dedupe_key": checked_key(dedupe_key), "source": source, "template": checked_template(template)}


def checked_key(dedupe_key: Any) -> str | None:
    if dedupe_key is None:
        return None
    if not isinstance(dedupe_key, str) or not dedupe_key:
        raise violates("dedupe_key must be a text that is not empty, or null")
    if len(dedupe_key.encode()) > MOST_KEY_BYTES:
        raise too_long("dedupe_key", MOST_KEY_BYTES)
    return dedupe_key


def checked_event(event: Any) -> Row:
    """Return an agent event as it is stored, or raise an error that names the wrong field."""
    if not isinstance(event, Mapping):
        raise violates("an event must be a JSON object")
    for name in event:
        if name not in EVENT_FIELDS:
            raise violates(f"an event must not have the field {name!r}; allowed: {', '.join(EVENT_FIELDS)}")
    type, data, mission_id = event.get("type"), event.get("data"), event.get("mission_id")
    if not isinstance(type, str) or not type:
        raise violates("event.type must be a text that is not empty")
    if len(type.encode()) > MOST_TYPE_BYTES:
        raise too_long("event.type", MOST_TYPE_BYTES)
    if not isinstance(data, Mapping):
        raise violates("event.data must be a JSON object")
    check_size(data, "event.data", MOST_DATA_BYTES)
    if mission_id is not None and (not isinstance(mission_id, str) or not 0 < len(mission_id.encode()) <= 256):
        raise violates("event.mission_id must be the id of a mission, or null")
    return {
        "type": type,
        "data": dict(data),
        "mission_id": mission_id,
        "dedupe_key": checked_key(event.get("dedupe_key")),
    }
