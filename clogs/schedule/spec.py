"""The spec of a schedule, checked before anything is stored."""

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
"""A run has at most sixteen; two of them are the schedule and the intended time."""
MOST_BYTES = 512 * 1_024
EXACT = 2**53


def text_of(most: int) -> Callable[[str], str]:
    """Return a check that a text has 1 to `most` bytes in UTF-8."""

    def check(text: str) -> str:
        if not 1 <= len(text.encode()) <= most:
            raise ValueError(f"must be a text of 1 to {most} bytes")
        return text

    return check


def checked_attribute(value: str | bool | int | float) -> str | bool | int | float:
    if isinstance(value, str) and len(value.encode()) > 256:
        raise ValueError("must be a text of at most 256 bytes")
    if isinstance(value, int) and abs(value) > EXACT:
        raise ValueError("must be a number within ±2^53")
    return value


Moment = Annotated[int, Field(ge=0, lt=YEAR_3000)]
Id = Annotated[str, AfterValidator(text_of(128))]
AttributeName = Annotated[str, AfterValidator(text_of(64))]
AttributeValue = Annotated[str | bool | int | float, AfterValidator(checked_attribute)]


class SpecModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @property
    def given(self) -> dict[str, Any]:
        """Return the fields that were given, without defaults, so that an equal spec has an equal dump."""
        return self.model_dump(mode="json", exclude_unset=True)


class Target(SpecModel):
    """Create a run of `clog_id` for each time, or signal `run_id`, in the schedule's own session.

    Without `input`, the input is the times. With `times_as`, they are added to the input, an object, under that name.
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
    def _check_target(self) -> Self:
        if (self.clog_id is None) == (self.run_id is None):
            raise ValueError(
                "exactly one of clog_id (its runs are created) and run_id (that run is signalled) must be given"
            )
        if self.times_as is not None and not isinstance(self.input, dict):
            raise ValueError("with times_as, input must be an object")
        for_runs = {"priority", "attributes", "queue", "max_attempts", "deadline_ms"} & self.model_fields_set
        if self.run_id is not None and for_runs:
            raise ValueError(f"{', '.join(sorted(for_runs))} must not be given with run_id: they apply to created runs")
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
    def _check_fields(self) -> Self:
        if (self.cron is None) == (self.every_ms is None):
            raise ValueError("exactly one of cron and every_ms must be given")
        misplaced = {"zone", "on_gap", "on_repeat"} if self.cron is None else {"anchor_at"}
        if self.model_fields_set & misplaced:
            names = ", ".join(sorted(self.model_fields_set & misplaced))
            raise ValueError(f"{names} must only be given with {'cron' if self.cron is None else 'every_ms'}")
        if self.end_at is not None and self.end_at <= (self.start_at or 0):
            raise ValueError("end_at must be after start_at")
        if self.overlap != "allow" and self.target.run_id is not None:
            raise ValueError("overlap must not be given with target.run_id: it applies to created runs")
        return self

    def plan(self, created_at: int) -> Timetable:
        """Return the timetable. An interval without an anchor counts from `start_at`, or from its creation."""
        anchor_at = next(at for at in (self.anchor_at, self.start_at, created_at) if at is not None)
        return Timetable(
            read_cron(self.cron, self.zone, self.on_gap, self.on_repeat) if self.cron is not None else None,
            self.every_ms or 0,
            anchor_at,
            self.start_at or 0,
            self.end_at,
        )

    @property
    def summary(self) -> str:
        return f"{self.cron} {self.zone}" if self.cron is not None else f"every {self.every_ms} ms"


UPDATABLE = frozenset(Spec.model_fields) - {"name", "overlap"}
TIMING = frozenset({"cron", "zone", "on_gap", "on_repeat", "every_ms", "anchor_at", "start_at", "end_at"})


def read_spec(fields: Any) -> Spec:
    """Return the spec, or raise an error that names the first wrong field."""
    if not isinstance(fields, dict):
        raise InvalidValue("a schedule must be an object with cron or every_ms, and a target")
    if len(json.dumps(fields, ensure_ascii=False).encode()) > MOST_BYTES:
        raise InvalidValue(
            f"a schedule must have at most {MOST_BYTES // 1_024} KiB; let its runs read larger data elsewhere"
        )
    try:
        spec = Spec.model_validate(fields)
    except ValidationError as error:
        raise InvalidValue(_first_of(error)) from None
    spec.plan(0)
    return spec


def apply_changes(spec: Spec, changes: Any) -> Spec:
    """Return the spec with these fields replaced; null removes a field."""
    if not isinstance(changes, dict) or not changes:
        raise InvalidValue(f"the changes must be an object with some of {', '.join(sorted(UPDATABLE))}")
    for name in changes:
        if name not in UPDATABLE:
            raise InvalidValue(f"{name!r} cannot be changed; only {', '.join(sorted(UPDATABLE))} can")
    fields = spec.given
    if changes.get("every_ms") is not None:
        fields = {name: value for name, value in fields.items() if name not in ("cron", "zone", "on_gap", "on_repeat")}
    if changes.get("cron") is not None:
        fields = {name: value for name, value in fields.items() if name not in ("every_ms", "anchor_at")}
    fields = {name: value for name, value in {**fields, **changes}.items() if value is not None}
    return read_spec(fields)


def _first_of(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    what = first["msg"].removeprefix("Value error, ")
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"schedule: {where + ': ' if where else ''}{what}{more}"
