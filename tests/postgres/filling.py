"""The rows of a SQLite database, put into a PostgreSQL one: what one store has written, the other can be asked."""

import json
import sqlite3
from typing import Any

import asyncpg

from tests.stores.dump import table_names

PARENTS_FIRST = ("ocean_sessions", "runs", "ocean_ticks", "ocean_api_keys")
MADE_UP = ("line",)
"""Columns that the database computes."""


async def fill(url: str, source: sqlite3.Connection) -> None:
    """In place of all that is there."""
    names = [name for name in table_names(source) if not name.startswith("sqlite_")]
    names.sort(key=lambda name: PARENTS_FIRST.index(name) if name in PARENTS_FIRST else len(PARENTS_FIRST))
    db = await asyncpg.connect(url)
    try:
        async with db.transaction():
            for name in reversed(names):
                await db.execute(f"DELETE FROM {name}")
            for name in names:
                await _fill_table(db, source, name)
    finally:
        await db.close()


async def _fill_table(db: Any, source: sqlite3.Connection, name: str) -> None:
    cursor = source.execute(f"SELECT * FROM {name}")
    columns = [column[0] for column in cursor.description]
    rows = [dict(zip(columns, row, strict=True)) for row in cursor]
    kept = ", ".join(column for column in columns if column not in MADE_UP)
    await db.execute(
        f"INSERT INTO {name} ({kept}) SELECT {kept} FROM json_populate_recordset(NULL::{name}, $1::text::json)",
        json.dumps(rows),
    )
