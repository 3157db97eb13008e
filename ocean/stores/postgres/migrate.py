"""Numbered, forward-only migrations of PostgreSQL, and the functions that belong to the newest of them.

A change of functions needs a new number too: an instance that is restarted with older code must not reinstall its own.
The migration must drop functions whose name, parameters or result type change: `CREATE OR REPLACE` keeps the old ones.
"""

import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import asyncpg

from ocean.state.errors import StoreUnusable
from ocean.stores.shared.schema import refuse_newer_schema

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    # At run time the driver's classes take no parameters.
    Connection = Any

MIGRATING = 1328960854
OLDEST = 14
LONGEST_S = 6 * 60 * 60
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_FOLDER = resources.files("ocean.stores").joinpath("sql", "postgres")


def migrations() -> list[tuple[int, str]]:
    found = [(match[1], file) for file in _FOLDER.iterdir() if (match := _NUMBERED.fullmatch(file.name))]
    return [(int(number), file.read_text()) for number, file in sorted(found, key=lambda pair: pair[0])]


def functions() -> str:
    files = sorted(_FOLDER.joinpath("functions").iterdir(), key=lambda file: file.name)
    return "\n".join(file.read_text() for file in files if file.name.endswith(".sql"))


async def schema_version(db: Connection) -> int | None:
    if await db.fetchval("SELECT to_regclass('ocean_schema')") is None:
        return None
    version: int | None = await db.fetchval("SELECT version FROM ocean_schema")
    return version


async def migrate(db: Connection, steps: Sequence[tuple[int, str]] | None = None) -> None:
    """Bring tables and functions up to date in one transaction, while other processes that want to do the same wait.

    A database that is up to date is only read: a role then needs no right to create anything.
    """
    if db.get_server_version().major < OLDEST:
        raise StoreUnusable(f"PostgreSQL {db.get_server_version().major} is too old; Ocean needs {OLDEST} or newer")
    steps = steps or migrations()
    newest = steps[-1][0]
    version = await schema_version(db) or 0
    refuse_newer_schema(version, newest)
    if version == newest:
        return
    async with db.transaction():
        # No time limit, neither for the migration nor for those who wait: to give up would mean to start over.
        await db.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        await db.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING, timeout=LONGEST_S)
        version = await schema_version(db) or 0
        refuse_newer_schema(version, newest)
        if version == newest:
            return
        for number, script in steps:
            if number > version:
                await db.execute(script, timeout=LONGEST_S)
        await db.execute(functions(), timeout=LONGEST_S)
        await db.execute("CREATE TABLE IF NOT EXISTS ocean_schema (version BIGINT NOT NULL)")
        await db.execute("DELETE FROM ocean_schema")
        await db.execute("INSERT INTO ocean_schema (version) VALUES ($1)", newest)
