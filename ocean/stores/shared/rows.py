"""From rows to records, for every store: a row is whatever answers a column's name, be it a driver's row or a dict.

Flags may be numbers, as SQLite has them; what is JSON in a column is text.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import make_dataclass
from operator import itemgetter
from typing import Any, Protocol, TypeVar, cast

from ocean.state.access import ApiKey, RunOwner
from ocean.state.counters import Counter, CounterKind
from ocean.state.records import (
    GENERIC_VERBS,
    ClogRecord,
    Delay,
    Ending,
    Event,
    Input,
    InputKind,
    Key,
    Run,
    RunInfo,
    RunStatus,
    TickInfo,
)
from ocean.state.transitions import due_at
from ocean.state.values import decode

T = TypeVar("T")


class Row(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


def maker(record: type[T]) -> Callable[..., T]:
    """Makes a frozen record from all its fields, in their order, in a fifth of the time that it takes by itself.

    By itself it is frozen from the start, and each field is forced in. Here an open twin is filled, and becomes it.
    """
    assert not hasattr(record, "__post_init__"), f"{record.__name__} looks at what it is made of"
    fields: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined]
    twin: Callable[..., Any] = make_dataclass(record.__name__, fields, slots=True)

    def make(*values: Any) -> T:
        made = twin(*values)
        made.__class__ = record
        return cast(T, made)

    return make


def run_from(row: Row) -> Run:
    return run_of([row[name] for name in Run._fields])


def run_of(values: Iterable[Any]) -> Run:
    """From all the columns of a run, in the order in which the record has them."""
    fields = list(values)
    for place, meaning in _MEANINGS:
        if fields[place] is not None:
            fields[place] = meaning[fields[place]]
    return Run._make(fields)


_FLAG = {0: False, 1: True}
_MEANINGS: list[tuple[int, Mapping[Any, Any]]] = [
    (Run._fields.index("status"), {each.value: each for each in RunStatus}),
    (Run._fields.index("ending"), {each.value: each for each in Ending}),
    (Run._fields.index("delayed_by"), {each.value: each for each in Delay}),
    *((Run._fields.index(name), _FLAG) for name in ("paused", "tick_open", "leased")),
]
"""What the columns of those places stand for."""


def info_from(run: Run, details: Row, attributes: Iterable[tuple[str, str]], keys: tuple[Key, ...]) -> RunInfo:
    """A run as its reader sees it. Of its attributes come the names, and the values as JSON."""
    rest = (
        due_at(run),
        decode(details["output"]),
        decode(details["error"]),
        {name: decode(value) for name, value in attributes},
        details["dedupe_key"],
        keys,
        details["retry_of"],
    )
    return _run_info(*_in_order_of_info((*run, *rest)))


_run_info = maker(RunInfo)
_REST = ("due_at", "output", "error", "attributes", "dedupe_key", "concurrency_keys", "retry_of")
_in_order_of_info = itemgetter(*map((*Run._fields, *_REST).index, RunInfo.__slots__))


def shown_from(shown: Row, run: Run | None = None) -> RunInfo:
    """A run and all that is shown of it, in one object: what `ocean_shown` answers. `run` is shown in its place."""
    keys = tuple(Key(name, hold) for name, hold in shown["keys"])
    return info_from(run or run_from(shown["run"]), shown["details"], shown["attributes"], keys)


def clog_from(row: Row) -> ClogRecord:
    flags = {name: bool(row[name]) for name in ("has_on_end", "paused", "external", "takes_all_inputs")}
    return ClogRecord(row["clog_id"], row["version"], allows=_allowed(row), **flags)


def standing_from(row: Row) -> RunOwner:
    return RunOwner(row["run_id"], row["session_id"], row["clog_id"], _allowed(row))


def _allowed(row: Row) -> tuple[str, ...]:
    return GENERIC_VERBS if row["allows"] is None else tuple(decode(row["allows"]))


def tick_from(row: Row) -> TickInfo:
    return TickInfo(**{name: row[name] for name in TickInfo.__slots__})


def input_from(row: Row) -> Input:
    return _input(
        row["number"],
        _KINDS[row["kind"]],
        decode(row["body"]),
        row["available_at"],
        row["signal_id"],
        row["timer"],
        row["actor"],
        row["caused_by"],
        row["consumed_tick"],
    )


_input = maker(Input)
_KINDS: Mapping[str, InputKind] = {each.value: each for each in InputKind}


def event_from(row: Row) -> Event:
    values = [row[name] for name in Event.__slots__]
    values[_PAYLOAD] = decode(values[_PAYLOAD])
    return _event(*values)


_event = maker(Event)
_PAYLOAD = Event.__slots__.index("payload")


def api_key_from(row: Row) -> ApiKey:
    values: dict[str, Any] = {name: row[name] for name in ApiKey.__slots__}
    for name in ("scopes", "roles", "sessions"):
        values[name] = None if row[name] is None else tuple(decode(row[name]))
    return ApiKey(**values)


def counter_from(row: Row) -> Counter:
    return Counter(CounterKind(row["kind"]), row["used"], row["at"], row["per_ms"], row["rate"])
