"""Copying the rows of a SQLite database into a PostgreSQL one, so that one store reads what the other has written."""

import json
from typing import Any

import asyncpg

from tests.stores.dump import CALLED, Tables

PARENTS_FIRST = ("ocean_sessions", "runs", "ocean_ticks", "ocean_api_keys")
COMPUTED = ("line",)
"""Columns that the database fills itself."""


async def fill(url: str, tables: Tables) -> None:
    """Replace all rows."""
    others = [name for name in tables if name not in PARENTS_FIRST and name not in CALLED.values()]
    names = [*PARENTS_FIRST, *others]
    db = await asyncpg.connect(url)
    try:
        async with db.transaction():
            for name in reversed(names):
                await db.execute(f"DELETE FROM {name}")
            for name in names:
                await _fill_table(db, name, *tables[name])
    finally:
        await db.close()


async def _fill_table(db: Any, name: str, columns: tuple[str, ...], *rows: tuple[Any, ...]) -> None:
    kept = ", ".join(column for column in columns if column not in COMPUTED)
    await db.execute(
        f"INSERT INTO {name} ({kept}) SELECT {kept} FROM json_populate_recordset(NULL::{name}, $1::text::json)",
        json.dumps([dict(zip(columns, row, strict=True)) for row in rows]),
    )
