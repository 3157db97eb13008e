"""Fill a database with many runs by copying all rows of one run under other ids.

Ocean itself has made that run, so the copies are complete, and this module needs to know only the column `run_id`.
"""

import sqlite3

import asyncpg

NUMBERS = "WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count}) "
FIRST = ("runs", "ocean_ticks")
"""Tables that others refer to, so they are copied first."""


def copy_in_sqlite(path: str, run_id: str, count: int) -> None:
    """Copy a run `count` times in a SQLite file."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN IMMEDIATE")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {
        table: [row[1] for row in db.execute(f"PRAGMA table_xinfo({table})") if not row[6] and row[1] != "seq"]
        for table in tables
    }
    for statement in _copies(
        columns, run_id, f"'{run_id}-' || i", NUMBERS.format(count=count) + "SELECT {} FROM numbers"
    ):
        db.execute(statement)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


async def copy_in_postgres(url: str, run_id: str, count: int) -> None:
    """Copy a run `count` times in a PostgreSQL database."""
    db = await asyncpg.connect(url, command_timeout=900)
    rows = await db.fetch(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND is_generated = 'NEVER' ORDER BY table_name, ordinal_position"
    )
    columns: dict[str, list[str]] = {}
    for row in rows:
        columns.setdefault(row["table_name"], []).append(row["column_name"])
    select = f"SELECT {{}} FROM generate_series(1, {count}) AS i"
    async with db.transaction():
        for statement in _copies(columns, run_id, f"'{run_id}-' || i", select):
            await db.execute(statement)
    await db.close()


def _copies(columns: dict[str, list[str]], run_id: str, other_id: str, select: str) -> list[str]:
    """Return a statement for each table that has rows of runs."""
    tables = sorted(
        (table for table in columns if "run_id" in columns[table]), key=lambda name: (name not in FIRST, name)
    )
    tables.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    statements = []
    for table in tables:
        values = ", ".join(_value(column, run_id, other_id) for column in columns[table])
        source = f"{select.format(values)} CROSS JOIN {table} t WHERE t.run_id = '{run_id}'"
        statements.append(f"INSERT INTO {table} ({', '.join(columns[table])}) {source}")
    return statements


def _value(column: str, run_id: str, other_id: str) -> str:
    if column == "run_id":
        return other_id
    if column == "correlation_id":
        return f"CASE WHEN t.correlation_id = '{run_id}' THEN {other_id} ELSE t.correlation_id END"
    return "nextval('ocean_cursor')" if column == "seq" else f"t.{column}"
