"""One transaction that units share: what they write is held back, and written together, table by table.

The plain writes of units wait until something is read that they could change, or until the commit. What a unit has
held back when it is refused is forgotten; only a unit that has written something for good needs a savepoint.
"""

import re
import sqlite3
from collections.abc import Mapping
from itertools import chain
from typing import Any

from ocean.state.records import ClogRecord, Run, RunStatus
from ocean.stores.sqlite.engine.cache import AtWork, Known
from ocean.stores.sqlite.engine.write_buffer import HELD, QUERIES, Held, Values, row_of

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
"""Reads that see only what belongs to one key, by the name of that key."""

_TABLES = frozenset(re.findall(r"(?:INTO|UPDATE) (\w+)", " ".join(QUERIES[name] for name in HELD)))
_READS_HELD = frozenset(name for name, text in QUERIES.items() if _TABLES & set(re.findall(r"\w+", text)))
_READS = frozenset(name for name, text in QUERIES.items() if re.match(r"(--.*\n)*(SELECT|WITH)\b", text))


class Transaction:
    """`has_woken`: something may be due because of it."""

    def __init__(self, db: sqlite3.Connection, known: Known | None = None) -> None:
        self._db = db
        self._known = known or Known()
        self._accepted = Held()
        self._own = Held()
        self._has_savepoint = False
        self._seq: int | None = None
        self._seq_before: int | None = None
        self.has_woken = False

    @property
    def clogs(self) -> dict[str, ClogRecord | None]:
        """Those that somebody has looked at."""
        return self._known.clogs

    def accept(self) -> None:
        """The unit is done: what it has held back is to be written."""
        if self._has_savepoint:
            self._db.execute("RELEASE unit")
            self._has_savepoint = False
        self._accepted.take(self._own)
        self._own = Held()
        self._seq_before = self._seq

    def refuse(self) -> None:
        """The unit has failed: it has changed nothing."""
        if self._has_savepoint:
            self._db.execute("ROLLBACK TO unit")
            self._db.execute("RELEASE unit")
            self._has_savepoint = False
            self._known.forget()
        self._own = Held()
        self._seq = self._seq_before

    def write(self) -> None:
        """Everything that is held back."""
        if self._accepted.keys:
            self._own.follow(self._accepted)
            self._accepted.write(self._db)
            self._known.learn_sessions(self._accepted.sessions())
            self._known.learn(self._accepted.begun, self._accepted.runs.values())
            self._accepted = Held()
        if self._own.keys:
            self._savepoint()
            self._own.write(self._db)
            self._known.drop(self._own.keys)
            self._own = Held()

    def commit(self) -> None:
        self._db.execute("COMMIT")
        self._known.commit(self._db, self._seq if self._seq is not None else self._known.seq)

    def _savepoint(self) -> None:
        if not self._has_savepoint:
            self._db.execute("SAVEPOINT unit")
            self._has_savepoint = True

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Any statement, after all that is held back."""
        self.write()
        self._known.forget()
        if self._db.in_transaction:
            self._savepoint()
        return self._db.execute(sql, values)

    def look(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Any statement that only reads."""
        self.write()
        return self._db.execute(sql, values)

    def ask(self, name: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """A statement that answers rows. One that only reads is kept from nothing that it cannot see."""
        if name not in _READS:
            self.clogs.clear()
            return self.execute(QUERIES[name], values)
        if name in _READS_HELD and not self._is_untouched(name, values):
            self.write()
        return self._db.execute(QUERIES[name], values)

    def ask_stored(self, name: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """What is written already, for whoever knows what is held back besides: it stays so."""
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
        """A statement that changes something, now. The number of rows it has changed."""
        self.clogs.clear()
        return self.execute(QUERIES[name], values).rowcount

    def hold(self, name: str, key: str, values: Mapping[str, Any]) -> None:
        """A row to be written later, of the run, request or session whose key this is."""
        self.hold_row(name, key, row_of[name](values))

    def hold_row(self, name: str, key: str, row: tuple[Any, ...]) -> None:
        """The same, with the values in their places."""
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
            self.has_woken = True
        if run.parent_run_id is not None:
            own.keys.add(children_of(run.parent_run_id))

    def insert(self, run: Run) -> None:
        self.save(run)
        self._own.made.add(run.run_id)

    def put_details(self, values: Values) -> None:
        """Of a new run."""
        self._own.details[values["run_id"]] = values
        self.hold("insert_details", values["run_id"], values)

    def put_input(self, values: Values) -> None:
        """A new input, or one that is held back, changed."""
        run_id = values["run_id"]
        self._own.inputs.setdefault(run_id, {})[values["number"]] = values
        self._own.keys.add(run_id)

    def held_inputs(self, run_id: str) -> Mapping[int, Values]:
        """The new inputs of a run that are held back, by number."""
        accepted, own = self._accepted.inputs.get(run_id), self._own.inputs.get(run_id)
        return {**accepted, **own} if accepted and own else accepted or own or {}

    def held_details(self, run_id: str) -> Values | None:
        """Of a run that is new, and held back."""
        return self._own.details.get(run_id) or self._accepted.details.get(run_id)

    def saved(self, run_id: str) -> Run | None:
        """A run as it will be written, if it is held back, or as it is known to be."""
        held = self._own.runs.get(run_id) or self._accepted.runs.get(run_id)
        if held is not None:
            return held
        known = self._known.get(run_id)
        return None if known is None else known.run

    def begin_tick(self, run_id: str, begun: AtWork) -> None:
        """It was claimed for the first time."""
        self._own.begun[run_id] = begun

    def at_work(self, run_id: str) -> AtWork | None:
        return self._known.get(run_id)

    def is_childless(self, run_id: str) -> bool:
        """False: nobody knows."""
        known, key = self._known.get(run_id), children_of(run_id)
        if known is None or not known.is_childless:
            return False
        return key not in self._own.keys and key not in self._accepted.keys

    def held_runs(self) -> list[Run]:
        """All that are held back, as they will be written."""
        return list({run.run_id: run for run in chain(self._accepted.runs.values(), self._own.runs.values())}.values())

    def is_known_session(self, session_id: str) -> bool:
        """False: nobody knows."""
        return session_id in self._known.sessions

    def has_turns(self) -> bool:
        """Whether anybody has one, which is seldom."""
        if self._known.has_turns is None:
            self._known.has_turns = self._db.execute(QUERIES["any_turn"]).fetchone() is not None
        return self._known.has_turns

    def last_seq(self) -> int:
        """The highest cursor ever given out, also to events that are held back."""
        if self._seq is None:
            self._seq = self._seq_before = self._stored_seq()
        return self._seq

    def _stored_seq(self) -> int:
        known = self._known.seq
        return int(self._db.execute(QUERIES["last_seq"]).fetchone()[0]) if known is None else known

    def next_seq(self) -> int:
        self._seq = self.last_seq() + 1
        return self._seq


def children_of(run_id: str) -> str:
    """The key of a run's children."""
    return f"children of {run_id}"
