"""Where a round works: a folder for SQLite, a database of its own on PostgreSQL; both on a real disk, both removed."""

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
"""As PostgreSQL ships, where the tests' server differs from it."""
SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "autovacuum")


class Places:
    """`server` is the URL of a server whose user may create databases; without one, ours is started when needed."""

    def __init__(self, server: str | None, folder: str | None) -> None:
        self._given = server
        self._folder = folder
        self._numbers = itertools.count(1)

    @contextmanager
    def place(self, store: Store) -> Iterator[str]:
        """An empty database: what a contestant is told as `db`."""
        if store == "sqlite":
            with tempfile.TemporaryDirectory(prefix="ocean-bench-", dir=self._folder) as folder:
                yield folder
            return
        name = f"ocean_bench_{os.getpid()}_{next(self._numbers)}"
        self.command(f'CREATE DATABASE "{name}" TEMPLATE template0')
        # What one contestant left to be written must not be written while the next is measured.
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
        """On the database named, or on one that no contestant has."""

        async def ask() -> list[asyncpg.Record]:
            db = await asyncpg.connect(url or self._url("postgres"))
            try:
                return await db.fetch(sql)
            finally:
                await db.close()

        return asyncio.run(ask())

    def postgres_settings(self) -> str:
        said = {name: str(self.command(f"SHOW {name}")[0][0]) for name in SHOWN}
        return ", ".join(f"{name} {value}" for name, value in said.items())
