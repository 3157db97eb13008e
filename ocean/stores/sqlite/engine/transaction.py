"""One transaction that units share. Their writes are buffered and written together, table by table.

Buffered writes wait for the commit, or for a read that could see them. The buffer of a unit that is refused is dropped;
only a unit that has already written to SQLite needs a savepoint.
"""

import re
import sqlite3
from collections.abc import Mapping
from itertools import chain
from typing import Any

from ocean.state.records import ClogRecord, Run, RunStatus
from ocean.stores.sqlite.engine.cache import Cache, OpenTick
from ocean.stores.sqlite.engine.write_buffer import BUFFERED, QUERIES, Values, WriteBuffer, row_of

KEYED = {
    **dict.fromkeys(
        (
            "get_run",
            "get_details",
            "get_tick",
            "get_step",
            "get_run_row",
            "get_signal",
            "due_inputs",
            "next_input_at",
            "tick_inputs",
            "undelivered",
            "unconsumed",
            "earlier_life",
        ),
        "run_id",
    ),
    "get_request": "request_key",
}
"""Reads that see only the rows of one key, with the name of that parameter."""

_TABLES = frozenset(re.findall(r"(?:INTO|UPDATE) (\w+)", " ".join(QUERIES[name] for name in BUFFERED)))
_READS_BUFFERED = frozenset(name for name, text in QUERIES.items() if _TABLES & set(re.findall(r"\w+", text)))
_READS = frozenset(name for name, text in QUERIES.items() if re.match(r"(--.*\n)*(SELECT|WITH)\b", text))


class Transaction:
    """`has_made_due`: a unit has saved a run that is pending, so there may be work to claim."""

    def __init__(self, db: sqlite3.Connection, cache: Cache | None = None) -> None:
        self._db = db
        self._cache = cache or Cache()
        self._accepted = WriteBuffer()
        self._own = WriteBuffer()
        self._has_savepoint = False
        self._seq: int | None = None
        self._seq_before: int | None = None
        self.has_made_due = False

    @property
    def clogs(self) -> dict[str, ClogRecord | None]:
        """The clogs that were looked up; units add to it."""
        return self._cache.clogs

    def accept(self) -> None:
        """Keep the unit's writes: its buffer becomes part of the transaction's."""
        if self._has_savepoint:
            self._db.execute("RELEASE unit")
            self._has_savepoint = False
        self._accepted.merge(self._own)
        self._own = WriteBuffer()
        self._seq_before = self._seq

    def refuse(self) -> None:
        """Undo the unit: drop its buffer, and roll back what it has already written."""
        if self._has_savepoint:
            self._db.execute("ROLLBACK TO unit")
            self._db.execute("RELEASE unit")
            self._has_savepoint = False
            self._cache.forget()
        self._own = WriteBuffer()
        self._seq = self._seq_before

    def write(self) -> None:
        """Write both buffers to SQLite."""
        if self._accepted.keys:
            self._own.assign_inputs_of(self._accepted)
            self._accepted.write(self._db)
            self._cache.learn_sessions(self._accepted.sessions())
            self._cache.learn(self._accepted.begun, self._accepted.runs.values())
            self._accepted = WriteBuffer()
        if self._own.keys:
            self._savepoint()
            self._own.write(self._db)
            self._cache.drop(self._own.keys)
            self._own = WriteBuffer()

    def commit(self) -> None:
        self._db.execute("COMMIT")
        self._cache.commit(self._db, self._seq if self._seq is not None else self._cache.seq)

    def _savepoint(self) -> None:
        if not self._has_savepoint:
            self._db.execute("SAVEPOINT unit")
            self._has_savepoint = True

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Execute any statement, after the buffered writes. It may change anything, so the cache is emptied."""
        self.write()
        self._cache.forget()
        if self._db.in_transaction:
            self._savepoint()
        return self._db.execute(sql, values)

    def read(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Execute any statement that only reads, after the buffered writes."""
        self.write()
        return self._db.execute(sql, values)

    def query(self, name: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Execute a named statement that returns rows.

        The buffers are written first, unless it only reads and cannot see what they hold.
        """
        if name not in _READS:
            self.clogs.clear()
            return self.execute(QUERIES[name], values)
        if name in _READS_BUFFERED and not self._is_untouched(name, values):
            self.write()
        return self._db.execute(QUERIES[name], values)

    def query_stored(self, name: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Execute a named read without writing the buffers, for a caller that adds the buffered rows itself."""
        assert name in _READS, name
        return self._db.execute(QUERIES[name], values)

    def _is_untouched(self, name: str, values: Mapping[str, Any]) -> bool:
        if name == "children_to_cancel":
            key = children_of(values["run_id"])
        elif name in KEYED:
            key = values[KEYED[name]]
        else:
            return False
        return key not in self._own.keys and key not in self._accepted.keys

    def do(self, name: str, values: Mapping[str, Any]) -> int:
        """Execute a named statement that changes rows now; returns how many."""
        self.clogs.clear()
        return self.execute(QUERIES[name], values).rowcount

    def buffer(self, name: str, key: str, values: Mapping[str, Any]) -> None:
        """Buffer a row of a named statement. `key` is the run, request or session that the row belongs to."""
        self.buffer_row(name, key, row_of[name](values))

    def buffer_row(self, name: str, key: str, row: tuple[Any, ...]) -> None:
        """Buffer a row whose values are in the order of the statement's parameters."""
        own = self._own
        rows = own.rows.get(name)
        if rows is None:
            own.rows[name] = [row]
        else:
            rows.append(row)
        own.keys.add(key)

    def save(self, run: Run) -> None:
        own = self._own
        own.runs[run.run_id] = run
        own.keys.add(run.run_id)
        if run.status is RunStatus.PENDING:
            self.has_made_due = True
        if run.parent_run_id is not None:
            own.keys.add(children_of(run.parent_run_id))

    def insert(self, run: Run) -> None:
        self.save(run)
        self._own.created.add(run.run_id)

    def put_details(self, values: Values) -> None:
        """Buffer the details of a new run."""
        self._own.details[values["run_id"]] = values
        self.buffer("insert_details", values["run_id"], values)

    def put_input(self, values: Values) -> None:
        """Buffer a new input, or replace one that is buffered."""
        run_id = values["run_id"]
        self._own.inputs.setdefault(run_id, {})[values["number"]] = values
        self._own.keys.add(run_id)

    def buffered_inputs(self, run_id: str) -> Mapping[int, Values]:
        """The new inputs of a run that are buffered, by number."""
        accepted, own = self._accepted.inputs.get(run_id), self._own.inputs.get(run_id)
        return {**accepted, **own} if accepted and own else accepted or own or {}

    def buffered_details(self, run_id: str) -> Values | None:
        """The details of a new run that is buffered."""
        return self._own.details.get(run_id) or self._accepted.details.get(run_id)

    def known_run(self, run_id: str) -> Run | None:
        """Return a run from the buffers or the cache; None if neither has it."""
        buffered = self._own.runs.get(run_id) or self._accepted.runs.get(run_id)
        if buffered is not None:
            return buffered
        cached = self._cache.get(run_id)
        return None if cached is None else cached.run

    def begin_tick(self, run_id: str, tick: OpenTick) -> None:
        """Remember a tick that was claimed for the first time, once its buffer is written."""
        self._own.begun[run_id] = tick

    def open_tick(self, run_id: str) -> OpenTick | None:
        return self._cache.get(run_id)

    def is_childless(self, run_id: str) -> bool:
        """Whether the run is known to have no child; False also if that is unknown."""
        cached, key = self._cache.get(run_id), children_of(run_id)
        if cached is None or not cached.is_childless:
            return False
        return key not in self._own.keys and key not in self._accepted.keys

    def buffered_runs(self) -> list[Run]:
        """All buffered runs, as they will be written."""
        return list({run.run_id: run for run in chain(self._accepted.runs.values(), self._own.runs.values())}.values())

    def is_known_session(self, session_id: str) -> bool:
        """Whether the session is known to exist; False also if that is unknown."""
        return session_id in self._cache.sessions

    def has_turns(self) -> bool:
        """Whether any tick has a turn, which is rare."""
        if self._cache.has_turns is None:
            self._cache.has_turns = self._db.execute(QUERIES["any_turn"]).fetchone() is not None
        return self._cache.has_turns

    def last_seq(self) -> int:
        """The highest cursor ever assigned, buffered events included."""
        if self._seq is None:
            self._seq = self._seq_before = self._stored_seq()
        return self._seq

    def _stored_seq(self) -> int:
        cached = self._cache.seq
        return int(self._db.execute(QUERIES["last_seq"]).fetchone()[0]) if cached is None else cached

    def next_seq(self) -> int:
        self._seq = self.last_seq() + 1
        return self._seq


def children_of(run_id: str) -> str:
    """The buffer key that stands for a run's children."""
    return f"children of {run_id}"
