"""One unit of work: the runs it has read and changed, and the events it appends, all at one moment in time."""

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from ocean.state.records import ClogRecord, Run, event_id, with_event
from ocean.state.values import encode_own
from ocean.stores.shared.refusals import run_not_found
from ocean.stores.shared.rows import clog_from, run_from_values
from ocean.stores.sqlite.engine.cache import OpenTick
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.write_buffer import QUERIES, positional
from ocean.stores.sqlite.keys import settle_slots, wake


class Unit:
    """What a verb works with.

    Runs are loaded once, changed in memory and saved by `flush`. Other writes are executed at once (`do`) or buffered
    until the end of the transaction (`later`).
    """

    def __init__(self, transaction: Transaction, now: int) -> None:
        self._transaction = transaction
        self.now = now
        self._runs: dict[str, Run | None] = {}
        self._changed: dict[str, None] = {}
        self._stored: dict[str, Run] = {}
        self.created: set[str] = set()
        self.keys_to_wake: dict[str, int] = {}
        self.ended_parents: list[tuple[str, str]] = []
        self.is_ending_children = False

    def all(self, name: str, /, **values: Any) -> list[sqlite3.Row]:
        return self._transaction.query(name, values).fetchall()

    def one(self, name: str, /, **values: Any) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._transaction.query(name, values).fetchone()
        return row

    def stored(self, name: str, /, **values: Any) -> Iterable[sqlite3.Row]:
        """Yield the rows of a named read without the buffered writes."""
        return self._transaction.query_stored(name, values)

    def read(self, sql: str, values: Any) -> sqlite3.Cursor:
        """Execute a statement of the caller's that only reads."""
        return self._transaction.read(sql, values)

    def do(self, name: str, /, **values: Any) -> int:
        """Execute a named statement that changes rows now; returns how many."""
        return self._transaction.do(name, values)

    def later(self, name: str, key: str, /, **values: Any) -> None:
        """Buffer a write until the end of the transaction, or until a unit reads rows that belong to this key."""
        self._transaction.buffer(name, key, values)

    def ensure_session(self, session_id: str) -> None:
        """Create the session on first use."""
        if not self._transaction.is_known_session(session_id):
            self.later("insert_session", session_id, session_id=session_id, now=self.now)

    def find(self, run_id: str) -> Run | None:
        if run_id not in self._runs:
            run = self._transaction.known_run(run_id)
            if run is None:
                row = self.one("get_run", run_id=run_id)
                run = None if row is None else run_from_values(row)
            self._runs[run_id] = run and self._keep_stored(run)
        return self._runs[run_id]

    def run(self, run_id: str) -> Run:
        run = self._runs.get(run_id) or self.find(run_id)
        if run is None:
            raise run_not_found(run_id)
        return run

    def load(self, rows: Iterable[sqlite3.Row]) -> list[Run]:
        """Return runs from rows that were read; a run that this unit already has stays as it is there."""
        runs = []
        for row in rows:
            loaded = self._runs.get(row["run_id"])
            runs.append(loaded if loaded is not None else self._keep_stored(run_from_values(row)))
            self._runs[row["run_id"]] = runs[-1]
        return runs

    def _keep_stored(self, run: Run) -> Run:
        """Remember how a run with concurrency keys is stored: the difference decides which slots it takes and frees."""
        if run.key_count:
            self._stored[run.run_id] = run
        return run

    def insert(self, run: Run) -> None:
        self._transaction.insert(run)
        self._runs[run.run_id] = run
        self.created.add(run.run_id)

    def save(self, run: Run) -> Run:
        self._runs[run.run_id] = run
        self._changed[run.run_id] = None
        return run

    def write(self, run: Run) -> None:
        """Save a run now: the next search in this unit must find it as changed."""
        self._runs[run.run_id] = self._keep_stored(run)
        self._transaction.save(run)

    def forget(self, run_id: str) -> None:
        """Forget a run whose row has been deleted."""
        self._runs[run_id] = None
        self._changed.pop(run_id, None)
        self._stored.pop(run_id, None)

    def buffered_runs(self) -> list[Run]:
        """The buffered runs of the transaction, with this unit's changes."""
        return [self._runs.get(run.run_id) or run for run in self._transaction.buffered_runs()]

    def put_details(self, **values: Any) -> None:
        """Buffer the details of a new run."""
        self._transaction.put_details(values)

    def buffered_details(self, run_id: str) -> Mapping[str, Any] | None:
        return self._transaction.buffered_details(run_id)

    def buffered_inputs(self, run: Run) -> Mapping[int, Mapping[str, Any]] | None:
        """The run's unconsumed inputs by number, if all of them are buffered; otherwise None."""
        buffered = self._transaction.buffered_inputs(run.run_id)
        return buffered if len(buffered) == run.pending_count else None

    def begin_tick(self, run: Run, tick: dict[str, Any], numbers: list[int]) -> None:
        """Remember a tick that was claimed for the first time: its row and the numbers of its inputs."""
        opened = OpenTick(run, tick, numbers, is_childless=self.buffered_details(run.run_id) is not None)
        self._transaction.begin_tick(run.run_id, opened)

    def open_tick(self, run_id: str) -> OpenTick | None:
        """The tick that this process has open for a run, if it is cached."""
        return self._transaction.open_tick(run_id)

    def is_childless(self, run_id: str) -> bool:
        """Whether the run is known to have no child; False also if that is unknown."""
        return self._transaction.is_childless(run_id)

    def put_input(self, **values: Any) -> None:
        """Buffer a new input, or replace one that is buffered."""
        self._transaction.put_input(values)

    def flush(self) -> None:
        """Write the changed runs. Runs with concurrency keys take, free or wait for slots here, and wake parked runs.

        No run is woken before all are written: until then the tables still show runs as parked that no longer are.
        """
        while self._changed:
            run_id = next(iter(self._changed))
            run = self._runs[run_id]
            if run is not None and run.key_count:
                run = self._keep_stored(settle_slots(self, self._stored.get(run_id), run))
            del self._changed[run_id]
            if run is not None:
                self._transaction.save(run)
        while self.keys_to_wake:
            wake(self, *self.keys_to_wake.popitem())

    def clog(self, clog_id: str) -> ClogRecord | None:
        clogs = self._transaction.clogs
        if clog_id not in clogs:
            row = self.one("get_clog", clog_id=clog_id)
            clogs[clog_id] = None if row is None else clog_from(row)
        return clogs[clog_id]

    def has_turns(self) -> bool:
        return self._transaction.has_turns()

    def next_version(self) -> int:
        """Return a number that is never used twice: the cursor of the event that this unit appends next."""
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
        step: str | None = None,
    ) -> tuple[str, int]:
        """Append an event to a run's log; returns its id and cursor. `text` is a payload that is already JSON."""
        run = self.save(with_event(self.run(run_id)))
        return self.counted_event(
            run, type, encode_own(payload) if text is None else text, tick, call, actor, caused_by, clog_id, step
        )

    def counted_event(
        self,
        run: Run,
        type: str,
        payload: str,
        tick: int | None = None,
        call: int | None = None,
        actor: str | None = None,
        caused_by: str | None = None,
        clog_id: str | None = None,
        step: str | None = None,
    ) -> tuple[str, int]:
        """Append the event that is already counted in `run.event_count`; returns its id and cursor."""
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
            step,
        )
        self._transaction.buffer_row("insert_event", run_id, event)
        return event_id(run_id, run_seq), seq

    def event_without_run(self, **event: Any) -> int:
        """Append an event that belongs to no run, and so has no `run_seq`; returns its cursor."""
        seq = self._transaction.next_seq()
        values = {"ts": self.now, "seq": seq, **event}
        self._transaction.buffer_row("insert_event", "", tuple(map(values.get, _EVENT)))
        return seq


_EVENT = (
    *("seq", "ts", "session_id", "run_id", "run_seq", "tick", "call", "clog_id", "type", "payload"),
    *("actor", "correlation_id", "causation_id", "step"),
)
"""The order in which `counted_event` lists the values."""
assert positional(QUERIES["insert_event"]).names == _EVENT
