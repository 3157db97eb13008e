"""One unit of work: the rows it has read, what it changes, and the events it appends, at one moment in time."""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from ocean.state.records import ClogRecord, Run, event_id, with_event
from ocean.state.values import encode_own
from ocean.stores.shared.refusals import run_not_found
from ocean.stores.shared.rows import clog_from, run_of
from ocean.stores.sqlite.engine.cache import AtWork
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.write_buffer import QUERIES, by_place
from ocean.stores.sqlite.keys import settle_slots, wake


class Unit:
    """Runs are loaded once, changed in memory and saved by `flush`; everything else is written at once, or with the
    other units of its transaction."""

    def __init__(self, transaction: Transaction, now: int) -> None:
        self._transaction = transaction
        self.now = now
        self._runs: dict[str, Run | None] = {}
        self._changed: dict[str, None] = {}
        self._stored: dict[str, Run] = {}
        self.made: set[str] = set()
        self.vacated: dict[str, int] = {}
        self.ended_parents: list[tuple[str, str]] = []
        self.is_ending_children = False

    def all(self, name: str, /, **values: Any) -> list[sqlite3.Row]:
        return self._transaction.ask(name, values).fetchall()

    def one(self, name: str, /, **values: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._transaction.ask(name, values).fetchone()
        return row

    def stored(self, name: str, /, **values: Any) -> Iterable[sqlite3.Row]:
        """Without what the transaction holds back, row by row."""
        return self._transaction.ask_stored(name, values)

    def look(self, sql: str, values: Any) -> sqlite3.Cursor:
        """What a statement of the caller's own reads."""
        return self._transaction.look(sql, values)

    def do(self, name: str, /, **values: Any) -> int:
        """How many rows it has changed."""
        return self._transaction.do(name, values)

    def later(self, name: str, key: str, /, **values: Any) -> None:
        """Write with the rest of the transaction; whoever reads what belongs to this key finds it written."""
        self._transaction.hold(name, key, values)

    def make_session(self, session_id: str) -> None:
        """On first use."""
        if not self._transaction.is_known_session(session_id):
            self.later("insert_session", session_id, session_id=session_id, now=self.now)

    def find(self, run_id: str) -> Run | None:
        if run_id not in self._runs:
            run = self._transaction.saved(run_id)
            if run is None:
                row = self.one("get_run", run_id=run_id)
                run = None if row is None else run_of(row)
            self._runs[run_id] = run and self._noted(run)
        return self._runs[run_id]

    def run(self, run_id: str) -> Run:
        run = self._runs.get(run_id) or self.find(run_id)
        if run is None:
            raise run_not_found(run_id)
        return run

    def loaded(self, rows: Iterable[sqlite3.Row]) -> list[Run]:
        """Runs from rows already at hand; a run this unit has changed stays as changed."""
        runs = []
        for row in rows:
            known = self._runs.get(row["run_id"])
            runs.append(known if known is not None else self._noted(run_of(row)))
            self._runs[row["run_id"]] = runs[-1]
        return runs

    def _noted(self, run: Run) -> Run:
        """Remember how a run with concurrency keys is stored: what changed decides which slots it takes and frees."""
        if run.key_count:
            self._stored[run.run_id] = run
        return run

    def insert(self, run: Run) -> None:
        self._transaction.insert(run)
        self._runs[run.run_id] = run
        self.made.add(run.run_id)

    def save(self, run: Run) -> Run:
        self._runs[run.run_id] = run
        self._changed[run.run_id] = None
        return run

    def write(self, run: Run) -> None:
        """Save at once: what others are found by must be known before the next one looks."""
        self._runs[run.run_id] = self._noted(run)
        self._transaction.save(run)

    def forget(self, run_id: str) -> None:
        """The run's row is gone."""
        self._runs[run_id] = None
        self._changed.pop(run_id, None)
        self._stored.pop(run_id, None)

    def held_runs(self) -> list[Run]:
        """What the transaction holds back, as this unit knows it."""
        return [self._runs.get(run.run_id) or run for run in self._transaction.held_runs()]

    def put_details(self, **values: Any) -> None:
        """Of a new run."""
        self._transaction.put_details(values)

    def held_details(self, run_id: str) -> Mapping[str, Any] | None:
        return self._transaction.held_details(run_id)

    def held_inputs(self, run: Run) -> Mapping[int, Mapping[str, Any]] | None:
        """Those that no tick has consumed, by their numbers, if all of them are held back."""
        held = self._transaction.held_inputs(run.run_id)
        return held if len(held) == run.pending_count else None

    def begin_tick(self, run: Run, tick: dict[str, Any], numbers: list[int]) -> None:
        """It was claimed for the first time; these are its row and its inputs."""
        begun = AtWork(run, tick, numbers, is_childless=self.held_details(run.run_id) is not None)
        self._transaction.begin_tick(run.run_id, begun)

    def at_work(self, run_id: str) -> AtWork | None:
        """What is known of a run without looking: it has a tick at work here."""
        return self._transaction.at_work(run_id)

    def is_childless(self, run_id: str) -> bool:
        """False: nobody knows."""
        return self._transaction.is_childless(run_id)

    def put_input(self, **values: Any) -> None:
        """A new input, or one that is held back, changed."""
        self._transaction.put_input(values)

    def flush(self) -> None:
        """Write the changed runs. Those with concurrency keys take, free or wait for slots here, and wake others.

        Nobody is woken before all are written: until then the tables show some in line who are there no more.
        """
        while self._changed:
            run_id = next(iter(self._changed))
            run = self._runs[run_id]
            if run is not None and run.key_count:
                run = self._noted(settle_slots(self, self._stored.get(run_id), run))
            del self._changed[run_id]
            if run is not None:
                self._transaction.save(run)
        while self.vacated:
            wake(self, *self.vacated.popitem())

    def clog(self, clog_id: str) -> ClogRecord | None:
        clogs = self._transaction.clogs
        if clog_id not in clogs:
            row = self.one("get_clog", clog_id=clog_id)
            clogs[clog_id] = None if row is None else clog_from(row)
        return clogs[clog_id]

    def has_turns(self) -> bool:
        return self._transaction.has_turns()

    def next_version(self) -> int:
        """Never used before and never again: it is the cursor of the event that this unit appends next."""
        return self._transaction.last_seq() + 1

    def event(
        self,
        run_id: str,
        type: str,
        payload: Any,
        *,
        tick: int | None = None,
        call: int | None = None,
        actor: str | None = None,
        caused_by: str | None = None,
        clog_id: str | None = None,
        text: str | None = None,
    ) -> tuple[str, int]:
        """Append to a run's log; answers the event's id and cursor. `text` is a payload that is JSON already."""
        run = self.save(with_event(self.run(run_id)))
        return self.tell(
            run, type, encode_own(payload) if text is None else text, tick, call, actor, caused_by, clog_id
        )

    def tell(
        self,
        run: Run,
        type: str,
        payload: str,
        tick: int | None = None,
        call: int | None = None,
        actor: str | None = None,
        caused_by: str | None = None,
        clog_id: str | None = None,
    ) -> tuple[str, int]:
        """Append the event that the run has counted last."""
        run_id, run_seq, seq = run.run_id, run.event_count, self._transaction.next_seq()
        event = (
            seq,
            self.now,
            run.session_id,
            run_id,
            run_seq,
            tick,
            call,
            clog_id or run.clog_id,
            type,
            payload,
            actor,
            run.correlation_id,
            caused_by,
        )
        self._transaction.hold_row("insert_event", run_id, event)
        return event_id(run_id, run_seq), seq

    def append(self, **event: Any) -> int:
        """Append an event of no run, which has no `run_seq`."""
        seq = self._transaction.next_seq()
        values = {"ts": self.now, "seq": seq, **event}
        self._transaction.hold_row("insert_event", "", tuple(map(values.get, _EVENT)))
        return seq


_EVENT = (
    *("seq", "ts", "session_id", "run_id", "run_seq", "tick", "call", "clog_id", "type", "payload"),
    *("actor", "correlation_id", "causation_id"),
)
"""In the order in which `tell` says them."""
assert by_place(QUERIES["insert_event"]).names == _EVENT
