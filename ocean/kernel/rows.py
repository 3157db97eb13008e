"""Rows as a clog reads and writes them: scopes become row addresses, values become the clog's models.

The ledger of a tick allows one read and one write per clog, and only writes of rows that were read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

from pydantic import BaseModel

from ocean.clog.clog import Clog
from ocean.kernel.arguments import CLEAR, checked_count, checked_names
from ocean.kernel.store.claims import RowsAnswer, RowsAsk
from ocean.state.effects import ABSENT, Apply, RowKey, RowWrite, StoredRow
from ocean.state.errors import InvalidValue, NotRead, ReadSpent, WriteSpent
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


@dataclass(slots=True)
class _Page:
    """What one clog has read and whether it has written."""

    ask: RowsAsk | None = None
    answer: RowsAnswer | None = None
    has_written: bool = False


@dataclass(slots=True)
class Ledger:
    """One page per clog: all calls of a tick that run a clog's code share its page, however they are nested."""

    pages: dict[str, _Page] = field(default_factory=dict)

    def _page(self, clog_id: str) -> _Page:
        page = self.pages.get(clog_id)
        if page is None:
            page = self.pages[clog_id] = _Page()
        return page

    def answer_for(self, ask: RowsAsk) -> RowsAnswer | None:
        """Return the result of the clog's one read if it covers `ask`, or None if the clog has not read yet."""
        page = self._page(ask.clog_id)
        if page.ask is None or page.answer is None:
            return None
        first = page.ask
        covered = (
            set(ask.keys) <= page.answer.rows.keys()
            and set(ask.dedupe_keys) <= set(first.dedupe_keys)
            and set(ask.ticks) <= set(first.ticks)
            and ask.history in (0, first.history)
        )
        if not covered:
            raise ReadSpent(
                f"clog {ask.clog_id!r} has used its one read of this tick, which did not name these rows; "
                "name all rows in one read"
            )
        return page.answer

    def row(self, clog_id: str, key: RowKey) -> StoredRow:
        """Return a row as this tick has read it, or raise `NotRead`."""
        page = self._page(clog_id)
        if page.answer is None or key not in page.answer.rows:
            raise NotRead(f"clog {clog_id!r} must read the {_name(key)} in this tick before it writes it")
        return page.answer.rows[key]

    def has_read_as_free(self, clog_id: str, session_id: str, dedupe_key: str) -> bool:
        """Return whether the clog's one read found the dedupe key unused."""
        page = self._page(clog_id)
        if page.ask is None or page.answer is None or page.ask.session_id != session_id:
            return False
        held = page.answer.run_by_dedupe_key
        return dedupe_key in held and held[dedupe_key] is None

    def record_read(self, ask: RowsAsk, answer: RowsAnswer) -> None:
        page = self._page(ask.clog_id)
        page.ask, page.answer = ask, answer

    def record_write(self, clog_id: str, keys: Iterable[RowKey], ticks: Iterable[int]) -> None:
        """Record the one write. Its rows and ticks must all have been named in the one read."""
        page = self._page(clog_id)
        if page.has_written:
            raise WriteSpent(f"clog {clog_id!r} has used its one write of this tick; write all rows at once")
        for key in keys:
            self.row(clog_id, key)
        named = page.ask.ticks if page.ask is not None else ()
        for tick in ticks:
            if tick not in named:
                raise NotRead(f"clog {clog_id!r} must read tick {tick} with ticks=[{tick}] before it deletes it")
        page.has_written = True

    def unspend_write(self, clog_id: str) -> None:
        """Undo `record_write` for a nested call that was rolled back."""
        self._page(clog_id).has_written = False

    def writers(self) -> frozenset[str]:
        return frozenset(clog_id for clog_id, page in self.pages.items() if page.has_written)


def _name(key: RowKey) -> str:
    match key.scope:
        case "run":
            return f"row of run {key.run_id}"
        case "tick":
            return f"row {key.row_id!r} of tick {key.tick}"
        case "session" | "global":
            return f"{key.scope} row"
        case _:
            assert_never(key.scope)
