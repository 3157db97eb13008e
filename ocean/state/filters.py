"""Which runs and which events are meant, checked and ready for a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ocean.state.records import Event, RunStatus

Value = TypeVar("Value", int, str)


@dataclass(frozen=True, slots=True)
class Span(Generic[Value]):
    """From `low` to `high`; None is open. `low` itself is in it and `high` is not, unless said otherwise."""

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
    """Which runs `list_runs` and `count_runs` speak of: any of each tuple; None means any at all.

    Values of attributes are sort keys. The order follows the range: by the attribute's value if one has a range,
    by end if `ended` is a range, else by creation; then by id.
    """

    clog_ids: tuple[str, ...] | None = None
    session_ids: tuple[str, ...] | None = None
    statuses: tuple[RunStatus, ...] | None = None
    parent_run_ids: tuple[str, ...] | None = None
    created: Span[int] = Span()
    ended: Span[int] = Span()
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranged: tuple[str, Span[str]] | None = None

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        named = (self.clog_ids, self.session_ids, self.statuses, self.parent_run_ids)
        return (*(each for each in named if each is not None), *self.attributes.values())

    @property
    def is_everything(self) -> bool:
        return self == RunFilter()

    @property
    def is_nothing(self) -> bool:
        """Any of no values is no run."""
        return not all(self.sets)


@dataclass(frozen=True, slots=True)
class FeedFilter:
    """Which events a feed has: one run's, one session's, one clog's, or all; narrowed by type and correlation."""

    run_id: str | None = None
    session_id: str | None = None
    clog_id: str | None = None
    types: tuple[str, ...] = ()
    correlation_id: str | None = None

    def has(self, event: Event) -> bool:
        """Whether the event is one of this feed's, as a store would find it."""
        return (
            self.run_id in (None, event.run_id)
            and self.session_id in (None, event.session_id)
            and self.clog_id in (None, event.clog_id)
            and self.correlation_id in (None, event.correlation_id)
            and (not self.types or event.type in self.types)
        )
