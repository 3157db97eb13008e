"""Which runs are meant, and in which order: what callers say, checked. For the kernel's verbs and for ticks alike."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any, Literal, TypedDict, TypeVar

from ocean.kernel.arguments import checked_choice
from ocean.state.attributes import Within, checked_names_of, sort_key, span_of
from ocean.state.errors import InvalidValue
from ocean.state.filters import RunFilter, Span
from ocean.state.records import ENDED, RunStatus
from ocean.state.values import checked_id, checked_time, shown

Scalar = str | int | float | bool
RunOrder = Literal["newest", "oldest", "ascending", "descending"]

MOST_COMBINATIONS = 200
"""Of values from different sets: each is a walk of its own through an index."""

T = TypeVar("T", bound=str)


class RunQuery(TypedDict, total=False):
    """Which runs are meant; what is left out means any. A set or list means any of its values, an empty one no run."""

    clog_id: str | Collection[str] | None
    session_id: str | Collection[str] | None
    status: RunStatus | str | Collection[RunStatus | str] | None
    parent_run_id: str | Collection[str] | None
    created_from: int | None
    created_until: int | None
    """Not itself meant: [from, until)."""
    ended_from: int | None
    ended_until: int | None
    attributes: Mapping[str, Scalar | Collection[Scalar] | Within] | None
    """One of them may be `Within` a range. They need a clog_id."""


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
) -> RunFilter:
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
    )
    if (equal or ranged) and where.clog_ids is None:
        raise InvalidValue("attributes are indexed by clog: filter by clog_id too")
    _refuse_never_ended(where)
    combinations = prod(len(values) for values in where.sets)
    if combinations > MOST_COMBINATIONS:
        raise InvalidValue(f"the sets make {combinations} combinations of values, over {MOST_COMBINATIONS}: split them")
    return where


def with_statuses(where: RunFilter, statuses: tuple[RunStatus, ...]) -> RunFilter:
    """These are meant unless the query says which. They are no set of the caller's, and make no combinations."""
    if where.statuses is not None:
        return where
    narrowed = replace(where, statuses=statuses)
    _refuse_never_ended(narrowed)
    return narrowed


def _refuse_never_ended(where: RunFilter) -> None:
    if not where.ended.is_any and where.statuses and ENDED.isdisjoint(where.statuses):
        raise InvalidValue(f"only done and failed runs have ended, and status is {', '.join(where.statuses)}")


def is_descending(where: RunFilter, order: RunOrder | None) -> bool:
    """Runs within a range of an attribute come by its value, ascending; others by time, the newest first."""
    if where.ranged is not None:
        what = f"order within a range of {where.ranged[0]!r}"
        return checked_choice(order or "ascending", what, ("ascending", "descending")) == "descending"
    if order in ("ascending", "descending"):
        raise InvalidValue(f"order {order!r} is by an attribute's value: give one of attributes as Within(…)")
    return checked_choice(order or "newest", "order", ("newest", "oldest")) == "newest"


def _any_of(value: Any, what: str, check: Callable[[Any, str], T]) -> tuple[T, ...] | None:
    if value is None:
        return None
    if _is_several(value):
        return tuple(sorted({check(each, f"each {what}") for each in value}))
    return (check(value, what),)


def _is_several(value: Any) -> bool:
    return isinstance(value, Sequence | Set) and not isinstance(value, str | bytes | bytearray)


def _checked_status(value: Any, what: str) -> RunStatus:
    try:
        return RunStatus(value)
    except ValueError:
        raise InvalidValue(f"{what} is one of {', '.join(RunStatus)}, got {shown(value)}") from None


def _times(low: int | None, high: int | None, what: str) -> Span[int]:
    for name, value in ((f"{what}_from", low), (f"{what}_until", high)):
        if value is not None:
            checked_time(value, name)
    if low is not None and high is not None and low > high:
        raise InvalidValue(f"{what}_from {low} is after {what}_until {high}")
    return Span(low, high)


def _attributes(asked: Mapping[str, Any]) -> tuple[dict[str, tuple[str, ...]], tuple[str, Span[str]] | None]:
    """Equalities by sort key, and the one range."""
    equal: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, Span[str]] = {}
    for name, value in checked_names_of(asked).items():
        if isinstance(value, Within):
            ranges[name] = span_of(name, value)
        else:
            values = value if _is_several(value) else (value,)
            equal[name] = tuple(sorted({sort_key(name, each) for each in values}))
    if len(ranges) > 1:
        raise InvalidValue(f"one attribute sets the order, so one may have a range, not {', '.join(ranges)}")
    return equal, next(iter(ranges.items()), None)
