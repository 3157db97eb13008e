"""Waiting for a condition, not for time."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.lowlevel.checkpoint()


def units_written(world: World) -> int:
    """The number of units that the store has executed in write transactions."""
    assert isinstance(world.store, SqliteStore)
    return world.store.database.group_sizes[1]


@asynccontextmanager
async def busy_writer(world: World) -> AsyncIterator[None]:
    """Block the database's writer: what is sent inside commits in that order, as one group, after the block."""
    assert isinstance(world.store, SqliteStore)
    database, begun, go = world.store.database, threading.Event(), threading.Event()

    def stand_still(db: Any) -> None:
        begun.set()
        go.wait(20)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(database.write, stand_still)
        await until(begun.is_set)
        try:
            yield
        finally:
            go.set()
    await until(lambda: not (database._queue or database._is_gathering or database._is_in_flight))


async def queued(world: World, count: int) -> None:
    """Wait until this many units wait for the writer. The database is a file: in memory, reads would wait too."""
    assert isinstance(world.store, SqliteStore)
    database = world.store.database
    await until(lambda: len(database._queue) == count)
