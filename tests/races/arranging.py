"""Waiting for a fact, not for time."""

from collections.abc import Callable

import anyio
import anyio.lowlevel

from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.lowlevel.checkpoint()


def units_written(world: World) -> int:
    """How many write transactions' worth of units the store has run."""
    assert isinstance(world.store, SqliteStore)
    return world.store.database.group_sizes[1]
