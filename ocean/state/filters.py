"""Filters of runs and events, checked, in the form that a store takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ocean.state.records import Event, RunStatus

Value = TypeVar("Value", int, str)


@dataclass(frozen=True, slots=True)
class Span(Generic[Value]):
    """A range from `low` to `high`; None is open. By default `low` is included and `high` is not."""

    low: Value | None = None
    high: Value | None = None
    has_low: bool = True
    has_high: bool = False

    @property
    def is_any(self) -> bool:
        return self.low is None and self.high is None

    def goes_down_to(self, value: Value) -> bool:
        return self.low is None or self.low < value or (self.low == value and self.has_low)

    def goes_up_to(self, value: Value) -> bool:
        return self.high is None or self.high > value or (self.high == value and self.has_high)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The runs that match one value of each tuple; None matches all.

    Values of attributes are sort keys. The range decides the order: by the attribute's value if one has a range, by
    end if `ended` is a range, else by creation; then by id.
    """

    clog_ids: tuple[str, ...] | None = None
    session_ids: tuple[str, ...] | None = None
    statuses: tuple[RunStatus, ...] | None = None
    parent_run_ids: tuple[str, ...] | None = None
    created: Span[int] = Span()
    ended: Span[int] = Span()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranged: tuple[str, Span[str]] | None = None
    end_incomplete: bool | None = None
    """Whether the run has ended without its last tick."""

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        named = (self.clog_ids, self.session_ids, self.statuses, self.parent_run_ids)
        return (*(each for each in named if each is not None), *self.attributes.values())

    @property
    def is_everything(self) -> bool:
        return self == RunFilter()

    @property
    def is_nothing(self) -> bool:
        """Whether no run can match, because a tuple is empty."""
        return not all(self.sets)


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """The events of a run, a session, a clog, or all; optionally only some types, or one correlation id."""

    run_id: str | None = None
    session_id: str | None = None
    clog_id: str | None = None
    types: tuple[str, ...] = ()
    correlation_id: str | None = None

    def has(self, event: Event) -> bool:
        """Return whether the event matches, by the rules of a store."""
        return (
            self.run_id in (None, event.run_id)
            and self.session_id in (None, event.session_id)
            and self.clog_id in (None, event.clog_id)
            and self.correlation_id in (None, event.correlation_id)
            and (not self.types or event.type in self.types)
        )
