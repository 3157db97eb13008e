"""The tables of a PostgreSQL database, copied into a SQLite one: what is checked there is checked of both."""

import json
import sqlite3
from typing import Any

from ocean.kernel.store import Store
from ocean.stores.migrate import migrate
from ocean.stores.postgres.link import Connection
from ocean.stores.postgres.store import PostgresStore
from ocean.stores.postgres.workspace import LOG, Table, tables
from tests.stores.dump import Tables, dump


def of_postgres(store: Store) -> PostgresStore:
    assert isinstance(store, PostgresStore)
    return store


async def copy(store: Store) -> sqlite3.Connection:
    """A database in memory with every row; whoever asks for it closes it."""
    names = [*(table.name for table in tables()), LOG]

    async def ask(db: Connection) -> tuple[dict[str, list[dict[str, Any]]], int]:
        async with db.transaction(isolation="repeatable_read", readonly=True):
            rows = {
                name: json.loads(await db.fetchval(f"SELECT coalesce(jsonb_agg(t), '[]')::text FROM {name} t"))
                for name in names
            }
            return rows, await db.fetchval("SELECT last_value FROM ocean_cursor")

    found, cursor = await of_postgres(store).link.read(ask)
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.row_factory = sqlite3.Row
    migrate(db)
    db.execute("DELETE FROM ocean_log_floor")
    columns = tuple(row["name"] for row in db.execute(f"PRAGMA table_info({LOG})"))
    for table in (*tables(), Table(LOG, columns, ("seq",))):
        db.executemany(table.insert, [tuple(row.get(name) for name in table.columns) for row in found[table.name]])
    db.execute("DELETE FROM sqlite_sequence")
    if cursor:
        db.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (cursor,))
    return db


async def postgres_tables(store: Store) -> Tables:
    db = await copy(store)
    try:
        return dump(db)
    finally:
        db.close()
