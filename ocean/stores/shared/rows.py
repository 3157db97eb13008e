"""From rows to records, for every store. A row is anything that is indexed by column name: a driver's row or a dict.

Flags may be numbers, as on SQLite; JSON columns are text.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import make_dataclass
from operator import itemgetter
from typing import Any, Protocol, TypeVar, cast

from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Counter, CounterKind
from ocean.state.records import (
    END_RETRY,
    GENERIC_VERBS,
    ApiKey,
    ClogRecord,
    Delay,
    Ending,
    Event,
    Input,
    InputKind,
    Key,
    Run,
    RunInfo,
    RunOwner,
    RunStatus,
    TickInfo,
)
from ocean.state.transitions import due_at
from ocean.state.values import decode

T = TypeVar("T")


class Row(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


def constructor_of(record: type[T]) -> Callable[..., T]:
    """Return a function that builds a frozen record from all its fields, in their order, in a fifth of the usual time.

    A frozen dataclass sets each field through `object.__setattr__`. This builds an unfrozen twin and changes its class.
    """
    assert not hasattr(record, "__post_init__"), f"{record.__name__} must not have a __post_init__: it would be skipped"
    fields: tuple[str, ...] = record.__slots__  # type: ignore[attr-defined]
    twin: Callable[..., Any] = make_dataclass(record.__name__, fields, slots=True)

    def make(*values: Any) -> T:
        made = twin(*values)
        made.__class__ = record
        return cast(T, made)

    return make


def run_from(row: Row) -> Run:
    try:
        values = [row[name] for name in Run._fields]
    except KeyError:
        # The response that is kept under a request key is of an older version, whose runs had fewer columns.
        older = {**Run._field_defaults, **cast(Mapping[str, Any], row)}
        values = [older[name] for name in Run._fields]
    return run_from_values(values)


def run_from_values(values: Iterable[Any]) -> Run:
    """Build a run from all its columns, in the order of the record's fields."""
    fields = list(values)
    for place, decoder in _DECODERS:
        if fields[place] is not None:
            fields[place] = decoder[fields[place]]
    return Run._make(fields)


_FLAG = {0: False, 1: True}
_DECODERS: list[tuple[int, Mapping[Any, Any]]] = [
    (Run._fields.index("status"), {each.value: each for each in RunStatus}),
    (Run._fields.index("ending"), {each.value: each for each in Ending}),
    (Run._fields.index("delayed_by"), {each.value: each for each in Delay}),
    *((Run._fields.index(name), _FLAG) for name in ("paused", "tick_open", "leased", "end_incomplete")),
]
"""For the columns at these positions, the meaning of each stored value."""


def info_from(run: Run, details: Row, attributes: Iterable[tuple[str, str]], keys: tuple[Key, ...]) -> RunInfo:
    """Build the public record of a run. `attributes` are pairs of a name and a value as JSON text."""
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


_run_info = constructor_of(RunInfo)
_REST = ("due_at", "output", "error", "attributes", "dedupe_key", "concurrency_keys", "retry_of")
_in_order_of_info = itemgetter(*map((*Run._fields, *_REST).index, RunInfo.__slots__))


def run_info_from(shown: Row, run: Run | None = None) -> RunInfo:
    """Build the public record of a run from what `ocean_shown` returns. `run`, if given, replaces the run in it."""
    keys = tuple(Key(name, hold) for name, hold in shown["keys"])
    return info_from(run or run_from(shown["run"]), shown["details"], shown["attributes"], keys)


def clog_from(row: Row) -> ClogRecord:
    flags = {name: bool(row[name]) for name in ("has_on_end", "paused", "external", "takes_all_inputs")}
    end_retry = END_RETRY if row["end_retry"] is None else RetryPolicy(**decode(row["end_retry"]))
    return ClogRecord(
        row["clog_id"],
        row["version"],
        allows=_allowed(row),
        end_retry=end_retry,
        cancel_grace_ms=row["grace_ms"],
        **flags,
    )


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


_input = constructor_of(Input)
_KINDS: Mapping[str, InputKind] = {each.value: each for each in InputKind}


def event_from(row: Row) -> Event:
    values = [row[name] for name in Event.__slots__]
    values[_PAYLOAD] = decode(values[_PAYLOAD])
    return _event(*values)


_event = constructor_of(Event)
_PAYLOAD = Event.__slots__.index("payload")


def api_key_from(row: Row) -> ApiKey:
    values: dict[str, Any] = {name: row[name] for name in ApiKey.__slots__}
    for name in ("scopes", "roles", "sessions"):
        values[name] = None if row[name] is None else tuple(decode(row[name]))
    return ApiKey(**values)


def counter_from(row: Row) -> Counter:
    return Counter(CounterKind(row["kind"]), row["used"], row["at"], row["per_ms"], row["rate"])
