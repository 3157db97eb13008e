"""What the units of a transaction have held back: rows to be written together, and what is known from them until then.

A statement that is run for many rows in a row costs about half of what it costs between others, and less if it inserts
them all at once; and a row that is changed before it is written is written once.
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
from ocean.stores.sqlite.engine.cache import AtWork
from ocean.stores.sqlite.engine.queries import load_queries

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

_INSERTS = frozenset(name for name in HELD if "INTO" in QUERIES[name])

Values = Mapping[str, Any]


class Statement(NamedTuple):
    """With its parameters by place, which are bound in half the time of named ones."""

    sql: str
    names: tuple[str, ...]


@cache
def by_place(sql: str) -> Statement:
    return Statement(re.sub(r":\w+", "?", sql), tuple(re.findall(r":(\w+)", sql)))


row_of = {name: itemgetter(*by_place(QUERIES[name]).names) for name in HELD}
"""The parameters of a statement, in their places."""

MOST_AT_ONCE = 64


@cache
def inserting(name: str, count: int) -> str:
    """The statement that inserts a row, for so many of them."""
    head, row, tail = re.split(r"(?<=VALUES )(\([^()]+\))", by_place(QUERIES[name]).sql)
    return head + ", ".join([row] * count) + tail


_SESSION = by_place(QUERIES["insert_session"]).names.index("session_id")
_ROW = (*Run._fields, "due_at", "last_call")
_ORDER_OF_INSERT = itemgetter(*map(_ROW.index, by_place(QUERIES["insert_run"]).names))
_ORDER_OF_SAVE = itemgetter(*map(_ROW.index, by_place(QUERIES["save_run"]).names))
_WORDS = [place for place, name in enumerate(Run._fields) if name in ("status", "ending", "delayed_by")]
_FLAGS = [place for place, name in enumerate(Run._fields) if name in ("tick_open", "paused", "leased")]


class Held:
    """Rows by statement. Runs are here as they will be, with those among them that are new and what their details say;
    inputs that are new, by run and number; ticks that have begun. `keys` says to whom all of it belongs."""

    __slots__ = ("begun", "details", "inputs", "keys", "made", "rows", "runs")

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.runs: dict[str, Run] = {}
        self.made: set[str] = set()
        self.details: dict[str, Values] = {}
        self.inputs: dict[str, dict[int, Values]] = {}
        self.begun: dict[str, AtWork] = {}
        self.keys: set[str] = set()

    def take(self, later: "Held") -> None:
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
        if later.made:
            self.made.update(later.made)
            self.details.update(later.details)
        if later.begun:
            self.begun.update(later.begun)

    def follow(self, earlier: "Held") -> None:
        """That is written first: inputs of it that a tick was given since are then rows to be changed, not new ones."""
        for run_id, inputs in self.inputs.items():
            for number in inputs.keys() & earlier.inputs.get(run_id, {}).keys():
                given = {"run_id": run_id, "number": number, "tick": inputs.pop(number)["assigned_tick"]}
                self.rows.setdefault("assign_input", []).append(row_of["assign_input"](given))

    def sessions(self) -> list[str]:
        """Those that are made, if they were not there."""
        return [row[_SESSION] for row in self.rows.get("insert_session", ())]

    def write(self, db: sqlite3.Connection) -> None:
        rows = self.rows
        if self.runs:
            made = [run for run_id, run in self.runs.items() if run_id in self.made]
            rest = [run for run_id, run in self.runs.items() if run_id not in self.made]
            rows["insert_run"] = [_ORDER_OF_INSERT(_row(run)) for run in made]
            rows["save_run"] = [_ORDER_OF_SAVE(_row(run)) for run in rest]
        rows["insert_input"] = [row_of["insert_input"](each) for some in self.inputs.values() for each in some.values()]
        for name in HELD:
            if name not in rows:
                continue
            if name in _INSERTS:
                _insert_all(db, name, rows[name])
            else:
                db.executemany(by_place(QUERIES[name]).sql, map(_bindable, rows[name]))


_NULL = math.nan
"""What SQLite stores as NULL. None is none of the types that are bound without a search for an adapter."""


def _bindable(values: Iterable[Any]) -> list[Any]:
    return [_NULL if value is None else value for value in values]


def _insert_all(db: sqlite3.Connection, name: str, rows: list[tuple[Any, ...]]) -> None:
    """By statements for 64, 32, 16 … rows: few different ones, which the connection keeps prepared."""
    first, count = 0, MOST_AT_ONCE
    while left := len(rows) - first:
        while count > left:
            count //= 2
        db.execute(inserting(name, count), _bindable(chain.from_iterable(rows[first : first + count])))
        first += count


def _row(run: Run) -> list[Any]:
    """Its columns, as plain values: others are bound by way of a search for an adapter."""
    row: list[Any] = [*run, due_at(run), int(is_last_call(run))]
    for place in _WORDS:
        if row[place] is not None:
            row[place] = row[place]._value_
    for place in _FLAGS:
        row[place] = int(row[place])
    return row
