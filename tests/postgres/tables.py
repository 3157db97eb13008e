"""Copying the tables of a PostgreSQL database into a SQLite one, so that the same checks apply to both."""

import json
import sqlite3
from typing import Any

from ocean.kernel.store import Store
from ocean.stores.postgres.client.connection import Connection
from ocean.stores.postgres.store import PostgresStore
from ocean.testing.simulation.inline_database import private_connection
from tests.stores.dump import Tables, dump, table_names


def of_postgres(store: Store) -> PostgresStore:
    assert isinstance(store, PostgresStore)
    return store


async def copy(store: Store) -> sqlite3.Connection:
    """A database in memory with every row; the caller closes it."""
    db = private_connection()
    db.execute("DELETE FROM ocean_log_floor")
    names = [name for name in table_names(db) if not name.startswith("sqlite_")]
    found, cursor = await _rows(store, names)
    db.execute("BEGIN")
    db.execute("PRAGMA defer_foreign_keys = ON")
    for name in names:
        columns = [row["name"] for row in db.execute(f"PRAGMA table_info({name})")]
        places = ", ".join("?" for _ in columns)
        rows = [[row[column] for column in columns] for row in found[name]]
        db.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})", rows)
    db.execute("DELETE FROM sqlite_sequence")
    if cursor:
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (cursor,))
    db.execute("COMMIT")
    return db


async def _rows(store: Store, names: list[str]) -> tuple[dict[str, list[dict[str, Any]]], int]:
    """All rows of one snapshot, by table, and the cursor of the log."""
    tables = ", ".join(f"'{name}', (SELECT coalesce(jsonb_agg(t), '[]') FROM {name} t)" for name in names)

    async def ask(db: Connection) -> tuple[dict[str, list[dict[str, Any]]], int]:
        sql = f"SELECT jsonb_build_object({tables})::text AS rows, last_value FROM ocean_cursor"
        row = await db.fetchrow(sql)
        assert row is not None
        return json.loads(row["rows"]), row["last_value"]

    return await of_postgres(store).pool.read(ask)


async def postgres_tables(store: Store) -> Tables:
    db = await copy(store)
    try:
        return dump(db)
    finally:
        db.close()
