"""The databases of a round: a folder for SQLite, a new database on PostgreSQL; on a real disk, removed afterwards."""

import asyncio
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.postgres.server import Server

Store = Literal["sqlite", "postgres"]

SHIPPED = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "autovacuum": "on",
}
"""PostgreSQL's default settings, where the server of the tests differs from them."""
SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "autovacuum")


class Databases:
    """Creates empty databases. `server` is the URL of a PostgreSQL server whose user may create databases; without it,
    a server is started when needed."""

    def __init__(self, server: str | None, folder: str | None) -> None:
        self._given = server
        self._folder = folder
        self._numbers = itertools.count(1)

    @contextmanager
    def fresh(self, store: Store) -> Iterator[str]:
        """Yield an empty database, as contestants get it in `db`, and remove it afterwards."""
        if store == "sqlite":
            with tempfile.TemporaryDirectory(prefix="ocean-bench-", dir=self._folder) as folder:
                yield folder
            return
        name = f"ocean_bench_{os.getpid()}_{next(self._numbers)}"
        self.command(f'CREATE DATABASE "{name}" TEMPLATE template0')
        # Otherwise pages of the last contestant would be written while the next one is measured.
        self.command("CHECKPOINT")
        try:
            yield self._url(name)
        finally:
            self.command(f'DROP DATABASE "{name}" WITH (FORCE)')

    @cached_property
    def _server(self) -> str:
        return (
            self._given or Server(folder=tempfile.gettempdir() if self._folder is None else self._folder, **SHIPPED).url
        )

    def _url(self, database: str) -> str:
        parts = urlsplit(self._server)
        return urlunsplit((parts.scheme, parts.netloc, f"/{database}", parts.query, ""))

    def command(self, sql: str, url: str | None = None) -> list[asyncpg.Record]:
        """Execute a statement on the given database, or on one that no contestant uses."""

        async def execute() -> list[asyncpg.Record]:
            db = await asyncpg.connect(url or self._url("postgres"))
            try:
                return await db.fetch(sql)
            finally:
                await db.close()

        return asyncio.run(execute())

    def postgres_settings(self) -> str:
        """Return the settings that matter for a comparison, as one line."""
        values = {name: str(self.command(f"SHOW {name}")[0][0]) for name in SHOWN}
        return ", ".join(f"{name} {value}" for name, value in values.items())
