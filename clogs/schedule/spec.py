"""What a schedule is told, checked before anything of it is stored."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from clogs.schedule.cron import OnGap, OnRepeat, read_cron
from clogs.schedule.times import Missed, Overlap, Timetable
from ocean import InvalidValue

YEAR_3000 = 32_503_680_000_000
LONGEST_MS = 10 * 365 * 86_400_000

MOST_ATTRIBUTES = 14
"""A run has sixteen, and two of them say which schedule made it, and for when."""
MOST_BYTES = 512 * 1_024
EXACT = 2**53


def text_of(most: int) -> Callable[[str], str]:
    """What is stored is measured in bytes."""

    def check(text: str) -> str:
        if not 1 <= len(text.encode()) <= most:
            raise ValueError(f"a text of 1 to {most} bytes is expected")
        return text

    return check


def checked_attribute(value: str | bool | int | float) -> str | bool | int | float:
    if isinstance(value, str) and len(value.encode()) > 256:
        raise ValueError("a text of at most 256 bytes is expected")
    if isinstance(value, int) and abs(value) > EXACT:
        raise ValueError("a number within ±2^53 is expected")
    return value


Moment = Annotated[int, Field(ge=0, lt=YEAR_3000)]
Id = Annotated[str, AfterValidator(text_of(128))]
AttributeName = Annotated[str, AfterValidator(text_of(64))]
AttributeValue = Annotated[str | bool | int | float, AfterValidator(checked_attribute)]


class SpecModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @property
    def given(self) -> dict[str, Any]:
        """What was said, and nothing that was not: the same words make the same run."""
        return self.model_dump(mode="json", exclude_unset=True)


class Target(SpecModel):
    """A run of `clog_id` for each time, or a signal to `run_id`; in the schedule's own session.

    Without `input` it is told the times. With `times_as` they are put into the input, an object, under that name.
    """

    clog_id: Id | None = None
    run_id: Annotated[str, AfterValidator(text_of(256))] | None = None
    input: Any = None
    times_as: Id | None = None
    priority: Annotated[int, Field(ge=0, le=9)] = 5
    attributes: Annotated[dict[AttributeName, AttributeValue], Field(max_length=MOST_ATTRIBUTES)] = {}
    queue: Id | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    deadline_ms: Annotated[int, Field(ge=1, le=LONGEST_MS)] | None = None

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.clog_id is None) == (self.run_id is None):
            raise ValueError("say clog_id, whose runs are created, or run_id, a run that is signalled")
        if self.times_as is not None and not isinstance(self.input, dict):
            raise ValueError("times_as puts the times into an input that is an object; give it one")
        for_runs = {"priority", "attributes", "queue", "max_attempts", "deadline_ms"} & self.model_fields_set
        if self.run_id is not None and for_runs:
            raise ValueError(f"{', '.join(sorted(for_runs))} is for runs that are created, not for a signal")
        return self

    def input_with(self, times: dict[str, Any]) -> Any:
        if self.times_as is not None:
            return {**self.input, self.times_as: times}
        return self.input if "input" in self.model_fields_set else times


class Spec(SpecModel):
    """`cron` in `zone`, or `every_ms` from `anchor_at`; from `start_at` on, before `end_at`, at most `limit` times."""

    name: Id | None = None
    cron: str | None = None
    zone: str = "UTC"
    on_gap: OnGap | None = None
    on_repeat: OnRepeat | None = None
    every_ms: Annotated[int, Field(ge=1_000, le=LONGEST_MS)] | None = None
    anchor_at: Moment | None = None
    start_at: Moment | None = None
    end_at: Moment | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    missed: Missed = "once"
    grace_ms: Annotated[int, Field(ge=0, le=LONGEST_MS)] = 60_000
    catch_up: Annotated[int, Field(ge=1, le=500)] = 100
    overlap: Overlap = "allow"
    target: Target

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.cron is None) == (self.every_ms is None):
            raise ValueError("say cron, or every_ms")
        of_the_other = {"zone", "on_gap", "on_repeat"} if self.cron is None else {"anchor_at"}
        if self.model_fields_set & of_the_other:
            names = ", ".join(sorted(self.model_fields_set & of_the_other))
            raise ValueError(f"{names} is for {'cron' if self.cron is None else 'every_ms'}")
        if self.end_at is not None and self.end_at <= (self.start_at or 0):
            raise ValueError("end_at is after start_at")
        if self.overlap != "allow" and self.target.run_id is not None:
            raise ValueError("overlap is for runs that are created, not for a signal")
        return self

    def plan(self, created_at: int) -> Timetable:
        """The times it means. An interval without an anchor counts from its start, or from its creation."""
        anchor_at = next(at for at in (self.anchor_at, self.start_at, created_at) if at is not None)
        return Timetable(
            read_cron(self.cron, self.zone, self.on_gap, self.on_repeat) if self.cron is not None else None,
            self.every_ms or 0,
            anchor_at,
            self.start_at or 0,
            self.end_at,
        )

    @property
    def in_short(self) -> str:
        return f"{self.cron} {self.zone}" if self.cron is not None else f"every {self.every_ms} ms"


UPDATABLE = frozenset(Spec.model_fields) - {"name", "overlap"}
TIMING = frozenset({"cron", "zone", "on_gap", "on_repeat", "every_ms", "anchor_at", "start_at", "end_at"})


def read_spec(said: Any) -> Spec:
    """The spec, or what is wrong with it and where."""
    if not isinstance(said, dict):
        raise InvalidValue("a schedule is an object with cron or every_ms, and a target")
    if len(json.dumps(said, ensure_ascii=False).encode()) > MOST_BYTES:
        raise InvalidValue(
            f"a schedule's words are at most {MOST_BYTES // 1_024} KiB; let its runs read what is larger"
        )
    try:
        spec = Spec.model_validate(said)
    except ValidationError as error:
        raise InvalidValue(_first_of(error)) from None
    spec.plan(0)
    return spec


def changed(spec: Spec, changes: Any) -> Spec:
    """The spec with these fields replaced; a field that is null is as if it had never been said."""
    if not isinstance(changes, dict) or not changes:
        raise InvalidValue(f"say what to change: an object with some of {', '.join(sorted(UPDATABLE))}")
    for name in changes:
        if name not in UPDATABLE:
            raise InvalidValue(f"{name!r} cannot be changed; these can: {', '.join(sorted(UPDATABLE))}")
    said = spec.given
    if changes.get("every_ms") is not None:
        said = {name: value for name, value in said.items() if name not in ("cron", "zone", "on_gap", "on_repeat")}
    if changes.get("cron") is not None:
        said = {name: value for name, value in said.items() if name not in ("every_ms", "anchor_at")}
    said = {name: value for name, value in {**said, **changes}.items() if value is not None}
    return read_spec(said)


def _first_of(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"schedule: {where + ': ' if where else ''}{what}{more}"
