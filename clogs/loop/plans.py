"""A plan: typed steps from state to state, each with a gate that only reads and an effect that acts."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ocean import InvalidValue

HOLD = "HOLD"
WORD = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Sight:
    """The issue as its gate and effect see it: as it was when it was locked. `failed_step` is set for a remedy."""

    issue_id: str
    project: str
    title: str
    state: str
    facts: Mapping[str, Any]
    actor: str
    now: int
    failed_step: int | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """The step cannot be executed yet; it stays the next one, and a later request asks the gate again."""

    code: str
    message: str


class LoopStepFailed(Exception):
    """Raised by a gate or an effect that failed permanently and changed nothing in external systems.

    After any other exception the effect may have happened: the step is tried again under the same key.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = _check_word(code, "the code of a failed step")
        self.message = message


Facts = Mapping[str, Any]
Gate = Callable[[Sight], Awaitable[Blocked | Facts | None]]
"""Only reads, since dry runs call it too. Facts that it returns are stored with the issue when the step is done."""
Effect = Callable[[Sight, str], Awaitable[Facts | None]]
"""Acts on external systems, under an idempotency key that stays the same until its result is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step from `state` to `to`. With `remedied`, the plan's remedy follows a failure."""

    number: int
    type: str
    state: str
    to: str
    gate: Gate | None = None
    effect: Effect | None = None
    estimated_ms: int | None = None
    remedied: bool = False

    def __post_init__(self) -> None:
        for value, what in ((self.number, "number"), (self.estimated_ms, "estimated_ms")):
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= (what == "number")
            if not is_count and (what == "number" or value is not None):
                raise InvalidValue(f"the {what} of a step must be a whole number, got {value!r}")
        for word, what in ((self.type, "type"), (self.state, "state"), (self.to, "to")):
            _check_word(word, f"the {what} of step {self.number}")


@dataclass(frozen=True, slots=True)
class PlanFinished:
    """The plan has no further step."""


class LoopPlan:
    """Steps in order; each starts in the state to which the previous one leads."""

    def __init__(self, name: str, steps: Iterable[Step], *, remedy: Step | None = None) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidValue(f"the name of a plan must be like 'afu9', got {name!r}")
        self.name = name
        self.steps = tuple(steps)
        self.remedy = remedy
        if not self.steps:
            raise InvalidValue(f"plan {name!r} must have at least one step")
        self._numbered = {step.number: step for step in (*self.steps, *([remedy] if remedy else []))}
        if len(self._numbered) < len(self.steps) + (remedy is not None):
            raise InvalidValue(f"the steps of plan {name!r} must have different numbers")
        for step, following in zip(self.steps, self.steps[1:], strict=False):
            if step.to != following.state:
                raise InvalidValue(
                    f"plan {name!r}: step {following.number} must start in {step.to}, where step {step.number} leads, "
                    f"not in {following.state}"
                )
        if remedy is None and any(step.remedied for step in self.steps):
            raise InvalidValue(f"plan {name!r} must have a remedy for its remedied steps; pass remedy=Step(…)")
        if remedy is not None and remedy.to != HOLD:
            raise InvalidValue(
                f"the remedy of plan {name!r} must lead to {HOLD}, where a person decides; not to {remedy.to}"
            )

    @property
    def first(self) -> Step:
        return self.steps[0]

    def find(self, number: int) -> Step | None:
        return self._numbered.get(number)

    def after(self, step: Step) -> Step | None:
        """Return the following step; None after the last one and after the remedy, where a person decides."""
        if step not in self.steps:
            return None
        place = self.steps.index(step) + 1
        return self.steps[place] if place < len(self.steps) else None


def next_of(plan: LoopPlan | None, state: str, number: int | None) -> Step | Blocked | PlanFinished:
    """Return what a request does for an issue in this state, before its gate is asked."""
    if plan is None:
        return Blocked("PLAN_UNKNOWN", "the issue's plan is not registered; start the server with it")
    if number is None and state == HOLD:
        return Blocked("ISSUE_ON_HOLD", "the issue is on hold; resume it when the problem is solved")
    if number is None:
        return PlanFinished()
    step = plan.find(number)
    if step is None:
        return Blocked("STEP_UNKNOWN", f"plan {plan.name!r} no longer has a step {number}; restore it")
    return step


async def ask_gate(step: Step, sight: Sight) -> Blocked | Facts:
    """Return the result of the step's gate: `Blocked`, or facts."""
    result = None if step.gate is None else await step.gate(sight)
    if isinstance(result, Blocked):
        _check_word(result.code, "the code of a blocker")
    return {} if result is None else result


def _check_word(value: Any, what: str) -> str:
    if not isinstance(value, str) or not WORD.fullmatch(value):
        raise InvalidValue(f"{what} must be a word in capitals, like SPEC_READY, got {value!r}")
    return value
