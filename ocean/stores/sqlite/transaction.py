"""One transaction that units share: what they write is held back, and written together, table by table.

A statement that is run for many rows in a row costs about half of what it costs between others. So the plain writes of
units wait until something is read that they could change, or until the commit. What a unit has held back when it is
refused is forgotten; only a unit that has written something for good needs a savepoint.
"""

import re
import sqlite3
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from ocean.kernel.records import ClogRecord, Run
from ocean.kernel.transitions import due_at, is_last_call
from ocean.stores.queries import load_queries

_COLUMNS = ", ".join(Run._fields)
QUERIES = {name: text.replace("{run}", _COLUMNS) for name, text in load_queries("sqlite.sql").items()}
"""`{run}` stands for the columns of a run, in the order of the record."""

HELD = (
    "insert_session",
    "insert_run",
    "save_run",
    "insert_details",
    "save_end",
    "insert_input",
    "assign_input",
    "consume_input",
    "insert_tick",
    "commit_tick",
    "insert_step",
    "put_run_row",
    "insert_event",
    "insert_request",
)
"""What is held back, in the order in which it is written: parents first, and new rows before changes of rows."""

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


class Statement(NamedTuple):
    """With its parameters by place, which are bound in half the time of named ones."""

    sql: str
    names: tuple[str, ...]


@cache
def _by_place(sql: str) -> Statement:
    return Statement(re.sub(r":\w+", "?", sql), tuple(re.findall(r":(\w+)", sql)))


_TABLES = frozenset(re.findall(r"(?:INTO|UPDATE) (\w+)", " ".join(QUERIES[name] for name in HELD)))
_READS_HELD = frozenset(name for name, text in QUERIES.items() if _TABLES & set(re.findall(r"\w+", text)))
_READS = frozenset(name for name, text in QUERIES.items() if re.match(r"(--.*\n)*(SELECT|WITH)\b", text))

_ROW = (*Run._fields, "due_at", "last_call")
_ORDER_OF_INSERT = itemgetter(*map(_ROW.index, _by_place(QUERIES["insert_run"]).names))
_ORDER_OF_SAVE = itemgetter(*map(_ROW.index, _by_place(QUERIES["save_run"]).names))
_WORDS = [place for place, name in enumerate(Run._fields) if name in ("status", "ending", "delayed_by")]
_FLAGS = [place for place, name in enumerate(Run._fields) if name in ("tick_open", "paused", "leased")]


class _Held:
    """Rows by statement; runs as they will be, and which of them are new; and the keys that all of it belongs to."""

    __slots__ = ("keys", "made", "rows", "runs")

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.runs: dict[str, Run] = {}
        self.made: set[str] = set()
        self.keys: set[str] = set()

    def take(self, later: "_Held") -> None:
        for name, rows in later.rows.items():
            self.rows.setdefault(name, []).extend(rows)
        self.runs |= later.runs
        self.made |= later.made
        self.keys |= later.keys

    def write(self, db: sqlite3.Connection) -> None:
        rows = self.rows
        if self.runs:
            made = [run for run_id, run in self.runs.items() if run_id in self.made]
            rest = [run for run_id, run in self.runs.items() if run_id not in self.made]
            rows["insert_run"] = [_ORDER_OF_INSERT(_row(run)) for run in made]
            rows["save_run"] = [_ORDER_OF_SAVE(_row(run)) for run in rest]
        for name in HELD:
            if rows.get(name):
                db.executemany(_by_place(QUERIES[name]).sql, rows[name])


class Transaction:
    """`clogs` are those that somebody in it has looked at."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._accepted = _Held()
        self._own = _Held()
        self._has_savepoint = False
        self._seq: int | None = None
        self._seq_before: int | None = None
        self.clogs: dict[str, ClogRecord | None] = {}

    def accept(self) -> None:
        """The unit is done: what it has held back is to be written."""
        if self._has_savepoint:
            self._db.execute("RELEASE unit")
            self._has_savepoint = False
        self._accepted.take(self._own)
        self._own = _Held()
        self._seq_before = self._seq

    def refuse(self) -> None:
        """The unit has failed: it has changed nothing."""
        if self._has_savepoint:
            self._db.execute("ROLLBACK TO unit")
            self._db.execute("RELEASE unit")
            self._has_savepoint = False
            self.clogs.clear()
        self._own = _Held()
        self._seq = self._seq_before

    def write(self) -> None:
        """Everything that is held back."""
        if self._accepted.keys:
            self._accepted.write(self._db)
            self._accepted = _Held()
        if self._own.keys:
            self._savepoint()
            self._own.write(self._db)
            self._own = _Held()

    def _savepoint(self) -> None:
        if not self._has_savepoint:
            self._db.execute("SAVEPOINT unit")
            self._has_savepoint = True

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        """Any statement, after all that is held back."""
        self.write()
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
        own = self._own
        own.rows.setdefault(name, []).append(tuple(map(values.__getitem__, _by_place(QUERIES[name]).names)))
        own.keys.add(key)

    def save(self, run: Run, *, is_new: bool = False) -> None:
        own = self._own
        own.runs[run.run_id] = run
        own.keys.add(run.run_id)
        if is_new:
            own.made.add(run.run_id)
        if run.parent_run_id is not None:
            own.keys.add(children_of(run.parent_run_id))

    def saved(self, run_id: str) -> Run | None:
        """A run as it will be written, if it is held back."""
        return self._own.runs.get(run_id) or self._accepted.runs.get(run_id)

    def last_seq(self) -> int:
        """The highest cursor ever given out, also to events that are held back."""
        if self._seq is None:
            self._seq = self._seq_before = int(self._db.execute(QUERIES["last_seq"]).fetchone()[0])
        return self._seq

    def next_seq(self) -> int:
        self._seq = self.last_seq() + 1
        return self._seq


def children_of(run_id: str) -> str:
    """The key of a run's children."""
    return f"children of {run_id}"


def _row(run: Run) -> list[Any]:
    """Its columns, as plain values: others are bound by way of a search for an adapter."""
    row: list[Any] = [*run, due_at(run), int(is_last_call(run))]
    for place in _WORDS:
        if row[place] is not None:
            row[place] = row[place]._value_
    for place in _FLAGS:
        row[place] = int(row[place])
    return row
