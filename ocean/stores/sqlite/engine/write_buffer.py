"""The buffered writes of a transaction: rows that are written together, and can be read from here until then.

A statement that is executed for many rows in sequence costs about half of what it costs between other statements, and
less if it inserts them all at once. A row that is changed again before it is written is written once.
"""

import math
import re
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from ocean.state.records import Run
from ocean.state.transitions import due_at, is_last_call
from ocean.stores.sqlite.engine.cache import OpenTick
from ocean.stores.sqlite.engine.queries import load_queries

_COLUMNS = ", ".join(Run._fields)
QUERIES = {name: text.replace("{run}", _COLUMNS) for name, text in load_queries("sqlite").items()}
"""The named statements. `{run}` stands for the columns of a run, in the order of the record."""

BUFFERED = (
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
"""The buffered statements, in the order in which they are written: parents first, and inserts before updates."""

_INSERTS = frozenset(name for name in BUFFERED if "INTO" in QUERIES[name])

Values = Mapping[str, Any]


class PositionalQuery(NamedTuple):
    """A statement with positional parameters, which are bound in half the time of named ones."""

    sql: str
    names: tuple[str, ...]


@cache
def positional(sql: str) -> PositionalQuery:
    return PositionalQuery(re.sub(r":\w+", "?", sql), tuple(re.findall(r":(\w+)", sql)))


row_of = {name: itemgetter(*positional(QUERIES[name]).names) for name in BUFFERED}
"""For each buffered statement, a function from its named values to a row in the order of its parameters."""

MOST_AT_ONCE = 64


@cache
def insert_sql(name: str, count: int) -> str:
    """The named insert statement for `count` rows."""
    head, row, tail = re.split(r"(?<=VALUES )(\([^()]+\))", positional(QUERIES[name]).sql)
    return head + ", ".join([row] * count) + tail


_SESSION = positional(QUERIES["insert_session"]).names.index("session_id")
_ROW = (*Run._fields, "due_at", "last_call")
_ORDER_OF_INSERT = itemgetter(*map(_ROW.index, positional(QUERIES["insert_run"]).names))
_ORDER_OF_SAVE = itemgetter(*map(_ROW.index, positional(QUERIES["save_run"]).names))
_ENUMS = [place for place, name in enumerate(Run._fields) if name in ("status", "ending", "delayed_by")]
_FLAGS = [
    place for place, name in enumerate(Run._fields) if name in ("tick_open", "paused", "leased", "end_incomplete")
]


class WriteBuffer:
    """`rows` by statement; `runs` as they will be, with the ids of those that are new in `created` and their `details`;
    new `inputs` by run and number; ticks that have `begun`; and the `keys` that any of it belongs to."""

    __slots__ = ("begun", "created", "details", "inputs", "keys", "rows", "runs")

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.runs: dict[str, Run] = {}
        self.created: set[str] = set()
        self.details: dict[str, Values] = {}
        self.inputs: dict[str, dict[int, Values]] = {}
        self.begun: dict[str, OpenTick] = {}
        self.keys: set[str] = set()

    def merge(self, later: "WriteBuffer") -> None:
        mine = self.rows
        for name, rows in later.rows.items():
            if name in mine:
                mine[name] += rows
            else:
                mine[name] = rows
        for run_id, inputs in later.inputs.items():
            self.inputs.setdefault(run_id, {}).update(inputs)
        self.runs.update(later.runs)
        self.keys.update(later.keys)
        if later.created:
            self.created.update(later.created)
            self.details.update(later.details)
        if later.begun:
            self.begun.update(later.begun)

    def assign_inputs_of(self, earlier: "WriteBuffer") -> None:
        """Turn inputs that `earlier` inserts into updates that assign their tick. `earlier` must be written first."""
        for run_id, inputs in self.inputs.items():
            for number in inputs.keys() & earlier.inputs.get(run_id, {}).keys():
                assigned = {"run_id": run_id, "number": number, "tick": inputs.pop(number)["assigned_tick"]}
                self.rows.setdefault("assign_input", []).append(row_of["assign_input"](assigned))

    def sessions(self) -> list[str]:
        """The ids of the sessions that exist once this buffer is written."""
        return [row[_SESSION] for row in self.rows.get("insert_session", ())]

    def write(self, db: sqlite3.Connection) -> None:
        rows = self.rows
        if self.runs:
            created = [run for run_id, run in self.runs.items() if run_id in self.created]
            rest = [run for run_id, run in self.runs.items() if run_id not in self.created]
            rows["insert_run"] = [_ORDER_OF_INSERT(_row(run)) for run in created]
            rows["save_run"] = [_ORDER_OF_SAVE(_row(run)) for run in rest]
        rows["insert_input"] = [row_of["insert_input"](each) for some in self.inputs.values() for each in some.values()]
        for name in BUFFERED:
            if name not in rows:
                continue
            if name in _INSERTS:
                _insert_all(db, name, rows[name])
            else:
                db.executemany(positional(QUERIES[name]).sql, map(_bindable, rows[name]))


_NULL = math.nan
"""SQLite stores it as NULL. Binding None would search for an adapter first."""


def _bindable(values: Iterable[Any]) -> list[Any]:
    return [_NULL if value is None else value for value in values]


def _insert_all(db: sqlite3.Connection, name: str, rows: list[tuple[Any, ...]]) -> None:
    """Insert with statements for 64, 32, 16 … rows: few different ones, which the connection keeps prepared."""
    first, count = 0, MOST_AT_ONCE
    while left := len(rows) - first:
        while count > left:
            count //= 2
        db.execute(insert_sql(name, count), _bindable(chain.from_iterable(rows[first : first + count])))
        first += count


def _row(run: Run) -> list[Any]:
    """The run's columns as plain values: to bind others, the driver would search for an adapter."""
    row: list[Any] = [*run, due_at(run), int(is_last_call(run))]
    for place in _ENUMS:
        if row[place] is not None:
            row[place] = row[place]._value_
    for place in _FLAGS:
        row[place] = int(row[place])
    return row
