"""Numbered, forward-only migrations of PostgreSQL, and the functions that go with the newest of them.

Functions that change get a new number too: an instance that is restarted with older code must not bring its own back.
A function whose arguments or answer change must be dropped by that migration first: it would be replaced by none.
"""

import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import asyncpg

from ocean.state.errors import StoreUnusable

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
    """Bring tables and functions up to date, in one transaction. Whoever else wants to waits, and finds it done.

    On a database that is up to date it only looks: for that, a role needs no right to create anything.
    """
    if db.get_server_version().major < OLDEST:
        raise StoreUnusable(f"PostgreSQL {db.get_server_version().major} is too old; Ocean needs {OLDEST} or newer")
    steps = steps or migrations()
    newest = steps[-1][0]
    if await schema_version(db) == newest:
        return
    async with db.transaction():
        # It takes as long as it takes, for whoever does it and whoever waits: to give up is to begin again.
        await db.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        await db.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING, timeout=LONGEST_S)
        version = await schema_version(db) or 0
        if version > newest:
            raise StoreUnusable(
                f"the database has schema {version}, this Ocean knows up to {newest}; upgrade ocean-runtime"
            )
        if version == newest:
            return
        for number, script in steps:
            if number > version:
                await db.execute(script, timeout=LONGEST_S)
        await db.execute(functions(), timeout=LONGEST_S)
        await db.execute("CREATE TABLE IF NOT EXISTS ocean_schema (version BIGINT NOT NULL)")
        await db.execute("DELETE FROM ocean_schema")
        await db.execute("INSERT INTO ocean_schema (version) VALUES ($1)", newest)
