"""All rows of all tables, to compare two databases, or one at two times."""

import sqlite3
from typing import Any

from ocean.kernel.store import Store
from ocean.stores.sqlite.engine.database import Database
from ocean.stores.sqlite.store import SqliteStore

Tables = dict[str, list[tuple[Any, ...]]]
"""By table: its columns, then its rows, sorted."""

CALLED = {"sqlite_sequence": "event_cursor"}


def of_sqlite(store: Store) -> Database:
    assert isinstance(store, SqliteStore)
    return store.database


def table_names(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    return [row[0] for row in rows]


def dump(db: sqlite3.Connection) -> Tables:
    found: Tables = {}
    for name in table_names(db):
        cursor = db.execute(f"SELECT * FROM {name}")
        columns = tuple(column[0] for column in cursor.description)
        found[CALLED.get(name, name)] = [columns, *sorted((tuple(row) for row in cursor), key=repr)]
    return found


def changed(before: Tables, after: Tables) -> set[str]:
    """The names of the tables that differ."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
