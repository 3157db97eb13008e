"""Queries of runs: which runs, and in which order. Checked here for verbs and ticks."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any, Literal, TypedDict, TypeVar

from ocean.kernel.arguments import checked_choice, checked_flag
from ocean.state.attributes import Within, checked_names_of, sort_key, span_of
from ocean.state.errors import InvalidValue
from ocean.state.filters import RunFilter, Span
from ocean.state.records import ENDED, RunStatus
from ocean.state.values import checked_id, checked_time, shown

Scalar = str | int | float | bool
RunOrder = Literal["newest", "oldest", "ascending", "descending"]

MOST_COMBINATIONS = 200
"""Of values from different sets: each combination is a separate range of an index."""

T = TypeVar("T", bound=str)


class RunQuery(TypedDict, total=False):
    """Selects runs. Filters that are left out match all. A collection matches any of its values, an empty one none."""

    clog_id: str | Collection[str] | None
    session_id: str | Collection[str] | None
    status: RunStatus | str | Collection[RunStatus | str] | None
    parent_run_id: str | Collection[str] | None
    created_from: int | None
    created_until: int | None
    """Exclusive: [from, until)."""
    ended_from: int | None
    ended_until: int | None
    attributes: Mapping[str, Scalar | Collection[Scalar] | Within] | None
    """One of them may be `Within` a range. Attributes need a clog_id."""
    end_incomplete: bool | None
    """Whether the run has ended without its last tick: see `retry_end`."""


def run_filter(
    clog_id: str | Collection[str] | None = None,
    session_id: str | Collection[str] | None = None,
    status: RunStatus | str | Collection[RunStatus | str] | None = None,
    parent_run_id: str | Collection[str] | None = None,
    created_from: int | None = None,
    created_until: int | None = None,
    ended_from: int | None = None,
    ended_until: int | None = None,
    attributes: Mapping[str, Scalar | Collection[Scalar] | Within] | None = None,
    end_incomplete: bool | None = None,
) -> RunFilter:
    """Check a query."""
    equal, ranged = _attributes({} if attributes is None else attributes)
    where = RunFilter(
        _any_of(clog_id, "clog_id", checked_id),
        _any_of(session_id, "session_id", checked_id),
        _any_of(status, "status", _checked_status),
        _any_of(parent_run_id, "parent_run_id", checked_id),
        _times(created_from, created_until, "created"),
        _times(ended_from, ended_until, "ended"),
        equal,
        ranged,
        None if end_incomplete is None else checked_flag(end_incomplete, "end_incomplete"),
    )
    if (equal or ranged) and where.clog_ids is None:
        raise InvalidValue("attributes need a clog_id: they are indexed by clog")
    _refuse_never_ended(where)
    combinations = prod(len(values) for values in where.sets)
    if combinations > MOST_COMBINATIONS:
        raise InvalidValue(
            f"the sets must make at most {MOST_COMBINATIONS} combinations of values, got {combinations}; split it"
        )
    return where


def with_statuses(where: RunFilter, statuses: tuple[RunStatus, ...]) -> RunFilter:
    """Add default statuses to a query that names none. They do not count as combinations."""
    if where.statuses is not None:
        return where
    narrowed = replace(where, statuses=statuses)
    _refuse_never_ended(narrowed)
    return narrowed


def _refuse_never_ended(where: RunFilter) -> None:
    if not where.ended.is_any and where.statuses and ENDED.isdisjoint(where.statuses):
        raise InvalidValue(
            f"status must include done or failed with ended_from or ended_until, got {', '.join(where.statuses)}"
        )


def is_descending(where: RunFilter, order: RunOrder | None) -> bool:
    """Return the direction. Runs in a range of an attribute are ordered by its value, others by time, newest first."""
    if where.ranged is not None:
        what = f"order within a range of {where.ranged[0]!r}"
        return checked_choice(order or "ascending", what, ("ascending", "descending")) == "descending"
    if order in ("ascending", "descending"):
        raise InvalidValue(f"order {order!r} needs a range: one of attributes must be Within(…)")
    return checked_choice(order or "newest", "order", ("newest", "oldest")) == "newest"


def _any_of(value: Any, what: str, check: Callable[[Any, str], T]) -> tuple[T, ...] | None:
    if value is None:
        return None
    if _is_list(value):
        return tuple(sorted({check(each, f"each {what}") for each in value}))
    return (check(value, what),)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray)


def _checked_status(value: Any, what: str) -> RunStatus:
    try:
        return RunStatus(value)
    except ValueError:
        raise InvalidValue(f"{what} must be one of {', '.join(RunStatus)}, got {shown(value)}") from None


def _times(low: int | None, high: int | None, what: str) -> Span[int]:
    for name, value in ((f"{what}_from", low), (f"{what}_until", high)):
        if value is not None:
            checked_time(value, name)
    if low is not None and high is not None and low > high:
        raise InvalidValue(f"{what}_from must not be after {what}_until, got {low} and {high}")
    return Span(low, high)


def _attributes(given: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], tuple[str, Span[str]] | None]:
    """Return the equalities as sort keys, and the one range."""
    equal: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, Span[str]] = {}
    for name, value in checked_names_of(given).items():
        if isinstance(value, Within):
            ranges[name] = span_of(name, value)
        else:
            values = value if _is_list(value) else (value,)
            equal[name] = tuple(sorted({sort_key(name, each) for each in values}))
    if len(ranges) > 1:
        raise InvalidValue(
            f"attributes must have at most one range, because it sets the order, got {', '.join(ranges)}"
        )
    return equal, next(iter(ranges.items()), None)
