"""Rows as a clog reads and writes them: scopes become row addresses, values become the clog's models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from ocean.clog.clog import Clog
from ocean.kernel.arguments import CLEAR, checked_count, checked_names
from ocean.kernel.store.claims import RowsAnswer, RowsAsk
from ocean.state.effects import ABSENT, Apply, RowKey, RowWrite, StoredRow
from ocean.state.errors import InvalidValue
from ocean.state.values import checked_id, decode, encode


@dataclass(frozen=True, slots=True)
class KeyedRun:
    """A run found by its dedupe key, and its row."""

    run_id: str
    value: Any


@dataclass(frozen=True, slots=True)
class TickRows:
    """One tick's rows, by row id."""

    tick: int
    rows: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of one read. An absent row is None, and has no entry in the mappings.

    `has_run`, `has_session` and `has_global` distinguish an absent row from a stored null.
    """

    run: Any = None
    session: Any = None
    global_: Any = None
    has_run: bool = False
    has_session: bool = False
    has_global: bool = False
    tick: Mapping[str, Any] = field(default_factory=dict)
    runs: Mapping[str, Any] = field(default_factory=dict)
    by_key: Mapping[str, KeyedRun | None] = field(default_factory=dict)
    ticks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    history: Sequence[TickRows] = ()


class Addresses(NamedTuple):
    """Returns the row keys of scopes; the ids of the tick are the defaults."""

    clog: Clog
    session_id: str
    run_id: str
    tick: int

    @property
    def run(self) -> RowKey:
        if not self.run_id:
            raise InvalidValue("run must be left out: this call has no run; name runs=[…], or call with run_id")
        return RowKey("run", self.clog.clog_id, run_id=self.run_id)

    @property
    def session(self) -> RowKey:
        if not self.session_id:
            raise InvalidValue("session must be left out: this call has no session; call with session_id")
        return RowKey("session", self.clog.clog_id, session_id=self.session_id)

    @property
    def global_(self) -> RowKey:
        return RowKey("global", self.clog.clog_id)

    def of_run(self, run_id: str) -> RowKey:
        return RowKey("run", self.clog.clog_id, run_id=checked_id(run_id, "run_id"))

    def of_tick(self, row_id: str) -> RowKey:
        if not self.tick:
            raise InvalidValue("tick must be left out: a direct call has no tick")
        checked_id(row_id, "row_id")
        return RowKey("tick", self.clog.clog_id, run_id=self.run_id, tick=self.tick, row_id=row_id)


def rows_ask(
    at: Addresses,
    run: bool,
    session: bool,
    global_: bool,
    tick: Sequence[str],
    runs: Sequence[str],
    keys: Sequence[str],
    ticks: Sequence[int],
    history: int,
) -> RowsAsk:
    """Check the arguments of `tick.read`."""
    named = [at.of_run(run_id) for run_id in checked_names(runs, "runs")]
    named += [at.of_tick(row_id) for row_id in checked_names(tick, "tick rows")]
    if run:
        named.append(at.run)
    if session:
        named.append(at.session)
    if global_:
        named.append(at.global_)
    checked_count(history, "history", most=1_000)
    if (ticks or history) and not at.run_id:
        raise InvalidValue("ticks and history must be left out: this call has no run")
    return RowsAsk(
        clog_id=at.clog.clog_id,
        session_id=at.session_id,
        run_id=at.run_id,
        keys=tuple(dict.fromkeys(named)),
        dedupe_keys=checked_names(keys, "keys"),
        ticks=tuple(checked_count(number, "each of ticks", least=1) for number in ticks),
        history=history,
    )


def rows_from(at: Addresses, ask: RowsAsk, answer: RowsAnswer) -> Rows:
    """Return the rows of a read that `ask` names, as the clog sees them."""

    def value(key: RowKey) -> Any:
        return at.clog.typed(key.scope, decode(answer.rows.get(key, ABSENT).text))

    found = {key: value(key) for key in ask.keys if answer.rows.get(key, ABSENT).version > 0}
    own_run = RowKey("run", at.clog.clog_id, run_id=at.run_id)
    own_session = RowKey("session", at.clog.clog_id, session_id=at.session_id)
    return Rows(
        run=found.get(own_run),
        session=found.get(own_session),
        global_=found.get(at.global_),
        has_run=own_run in found,
        has_session=own_session in found,
        has_global=at.global_ in found,
        tick={key.row_id: row for key, row in found.items() if key.scope == "tick"},
        runs={key.run_id: row for key, row in found.items() if key.scope == "run"},
        by_key={key: _keyed(at, answer, key, value) for key in ask.dedupe_keys},
        ticks={tick: _rows_of_tick(at, answer, tick, value) for tick in ask.ticks},
        history=[
            TickRows(tick, {row_id: decode(text) for row_id, text in rows.items()}) for tick, rows in answer.history
        ]
        if ask.history
        else (),
    )


def rows_named(at: Addresses, ask: RowsAsk, answer: RowsAnswer) -> list[RowKey]:
    """Return the rows that one read has named: by address, by dedupe key and by tick."""
    found = [run_id for key in ask.dedupe_keys if (run_id := answer.run_by_dedupe_key[key]) is not None]
    whole = [key for key in answer.rows if key.scope == "tick" and key.tick in ask.ticks]
    return [*ask.keys, *(at.of_run(run_id) for run_id in found), *whole]


def _keyed(at: Addresses, answer: RowsAnswer, key: str, value: Callable[[RowKey], Any]) -> KeyedRun | None:
    run_id = answer.run_by_dedupe_key[key]
    return None if run_id is None else KeyedRun(run_id, value(at.of_run(run_id)))


def _rows_of_tick(at: Addresses, answer: RowsAnswer, tick: int, value: Callable[[RowKey], Any]) -> dict[str, Any]:
    mine = (key for key in answer.rows if key.scope == "tick" and key.tick == tick and key.run_id == at.run_id)
    return {key.row_id: value(key) for key in mine}


def row_write(clog: Clog, key: RowKey, read: StoredRow, value: Any) -> RowWrite:
    if value is CLEAR:
        return RowWrite(key, read.version)
    if callable(value) and not isinstance(value, BaseModel):
        return RowWrite(key, read.version, apply=_applied(clog, key, value), seen=read.text)
    return RowWrite(key, read.version, text=_text(clog, key, value))


def _applied(clog: Clog, key: RowKey, change: Callable[[Any], Any]) -> Apply:
    def apply(text: str | None) -> str | None:
        value = change(clog.typed(key.scope, decode(text)))
        return None if value is CLEAR else _text(clog, key, value)

    return apply


def _text(clog: Clog, key: RowKey, value: Any) -> str:
    return encode(clog.typed(key.scope, value), f"{key.scope} row")
