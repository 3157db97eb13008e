"""A loop is a plan: typed steps, each with a gate that only looks and an effect that acts, from state to state."""

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
    """What a step sees of its issue, as it was when it was locked. A remedy sees which step has failed."""

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
    """Not now: the step is still the next one, and a later click looks again. `code` is for programs."""

    code: str
    message: str


class LoopStepFailed(Exception):
    """Raised by a gate or an effect that knows its answer: it is no, and nothing has happened outside.

    Any other exception may have happened after the effect: the step is tried again under the same key.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = _word(code, "the code of a failed step")
        self.message = message


Facts = Mapping[str, Any]
Gate = Callable[[Sight], Awaitable[Blocked | Facts | None]]
"""Only looks: it is asked in dry runs too. What it answers is remembered with the issue, once its step is done."""
Effect = Callable[[Sight, str], Awaitable[Facts | None]]
"""Acts outside, under an idempotency key that stays the same until it is known whether it has acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From `state` to `to`. With `remedied`, a failure makes the plan's remedy the next step."""

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
                raise InvalidValue(f"the {what} of a step is a whole number, got {value!r}")
        for word, what in ((self.type, "type"), (self.state, "state"), (self.to, "to")):
            _word(word, f"the {what} of step {self.number}")


@dataclass(frozen=True, slots=True)
class PlanFinished:
    """The plan has no further step."""


class LoopPlan:
    """Steps in their order; each begins in the state that the one before it has led to."""

    def __init__(self, name: str, steps: Iterable[Step], *, remedy: Step | None = None) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidValue(f"a plan's name is like 'afu9', got {name!r}")
        self.name = name
        self.steps = tuple(steps)
        self.remedy = remedy
        if not self.steps:
            raise InvalidValue(f"plan {name!r} has no steps")
        self._numbered = {step.number: step for step in (*self.steps, *([remedy] if remedy else []))}
        if len(self._numbered) < len(self.steps) + (remedy is not None):
            raise InvalidValue(f"two steps of plan {name!r} have the same number")
        for step, following in zip(self.steps, self.steps[1:], strict=False):
            if step.to != following.state:
                raise InvalidValue(
                    f"plan {name!r}: step {step.number} leads to {step.to}, but step {following.number} begins in "
                    f"{following.state}"
                )
        if remedy is None and any(step.remedied for step in self.steps):
            raise InvalidValue(f"plan {name!r} has no remedy for its remedied steps; give it remedy=Step(…)")
        if remedy is not None and remedy.to != HOLD:
            raise InvalidValue(f"the remedy of plan {name!r} leads to {HOLD}, where somebody decides; not {remedy.to}")

    @property
    def first(self) -> Step:
        return self.steps[0]

    def find(self, number: int) -> Step | None:
        return self._numbered.get(number)

    def after(self, step: Step) -> Step | None:
        """None after the last one, and after the remedy: then somebody has to decide."""
        if step not in self.steps:
            return None
        place = self.steps.index(step) + 1
        return self.steps[place] if place < len(self.steps) else None


def next_of(plan: LoopPlan | None, state: str, number: int | None) -> Step | Blocked | PlanFinished:
    """What a click has to do for an issue in this state, before any gate is asked."""
    if plan is None:
        return Blocked("PLAN_UNKNOWN", "the issue's plan is not registered here; start this server with it")
    if number is None and state == HOLD:
        return Blocked("ISSUE_ON_HOLD", "the issue is on hold; resume it when it is remedied")
    if number is None:
        return PlanFinished()
    step = plan.find(number)
    if step is None:
        return Blocked("STEP_UNKNOWN", f"plan {plan.name!r} has no step {number} any more; put it back")
    return step


async def looked(step: Step, sight: Sight) -> Blocked | Facts:
    """What the step's gate says: blocked, or what it has seen."""
    said = None if step.gate is None else await step.gate(sight)
    if isinstance(said, Blocked):
        _word(said.code, "the code of a blocker")
    return {} if said is None else said


def _word(value: Any, what: str) -> str:
    if not isinstance(value, str) or not WORD.fullmatch(value):
        raise InvalidValue(f"{what} is a word in capitals, like SPEC_READY, got {value!r}")
    return value
