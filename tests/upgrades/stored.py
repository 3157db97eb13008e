"""The stored databases, loaded for a test."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from ocean.stores.postgres.migrate import migrations
from tests.postgres.server import blank_database, drop_database

FIXTURES = Path(__file__).with_name("fixtures")
NAMES = sorted(path.stem for path in FIXTURES.glob("*.sql"))


def expected_of(name: str) -> dict[str, Any]:
    """Return what the old code itself made of the database: its parts, its callers' notes, and the ends of its runs."""
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return found


@asynccontextmanager
async def restored(name: str, folder: Path) -> AsyncIterator[str]:
    """Load a stored database as the old code has left it, and yield its URL."""
    dump = (FIXTURES / f"{name}.sql").read_text()
    if name.startswith("sqlite"):
        path = folder / f"{name}.db"
        db = sqlite3.connect(path)
        db.executescript(dump)
        db.close()
        yield f"sqlite:///{path}"
        return
    url, version = blank_database(), int(name.partition("-")[2])
    try:
        await _load_postgres(url, version, dump)
        yield url
    finally:
        drop_database(url)


async def _load_postgres(url: str, version: int, dump: str) -> None:
    server: Any = await asyncpg.connect(url)
    try:
        for number, script in migrations():
            if number <= version:
                await server.execute(script)
        await server.execute("SET check_function_bodies = off")
        await server.execute(dump)
        await server.execute("CREATE TABLE IF NOT EXISTS ocean_schema (version BIGINT NOT NULL)")
        await server.execute("INSERT INTO ocean_schema (version) VALUES ($1)", version)
    finally:
        await server.close()
