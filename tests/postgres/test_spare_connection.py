"""The spare connection: no caller waits for it in vain, and it is closed with the pool."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from ocean import SystemClock
from ocean.state.clock import Clock
from ocean.stores.postgres.client.connection import CLOSING_S, SPARE_MS, Connection, ConnectionPool
from ocean.stores.postgres.client.options import options_from
from ocean.testing import ManualClock
from tests.postgres.rivals import rival

pytestmark = pytest.mark.anyio

SOON_S = CLOSING_S / 2


@asynccontextmanager
async def linked(url: str, clock: Clock | None = None) -> AsyncIterator[ConnectionPool]:
    """A pool with one connection and one attempt."""
    pool = ConnectionPool(options_from(f"{url}?pool=1"), clock or SystemClock(), retry_pauses_ms=(0,))
    await pool.open()
    try:
        yield pool
    finally:
        with anyio.fail_after(SOON_S):
            await pool.close()


async def pid(db: Connection) -> int:
    return int(await db.fetchval("SELECT pg_backend_pid()"))


async def lock(db: Connection) -> None:
    """Wait for the rival's lock."""
    await db.execute("SELECT ocean_lock()")


async def test_consecutive_statements_use_the_same_connection(real_database: str) -> None:
    async with linked(real_database) as pool:
        assert await pool.read(pid) == await pool.read(pid)


async def test_a_connection_unused_for_long_is_replaced(real_database: str) -> None:
    clock = ManualClock()
    async with linked(real_database, clock) as pool:
        first = await pool.read(pid)
        clock.advance(SPARE_MS)
        assert await pool.read(pid) == first
        clock.advance(SPARE_MS + 1)
        assert await pool.read(pid) != first


async def test_a_waiting_caller_gets_the_connection(real_database: str) -> None:
    async with linked(real_database) as pool, rival(real_database) as other:
        await other.lock()
        with anyio.fail_after(SOON_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(pool.read, lock)
                await other.is_waited_for()
                await other.rollback()


async def test_a_spare_connection_that_was_cut_is_not_used(real_database: str) -> None:
    async with linked(real_database) as pool, rival(real_database) as other:
        first = await pool.read(pid)
        await other.db.execute("SELECT pg_terminate_backend($1)", first)
        with anyio.fail_after(SOON_S):
            while pool.owns(first):
                await anyio.lowlevel.checkpoint()
        assert await pool.read(pid) != first


async def test_a_cancelled_caller_does_not_harm_the_next(real_database: str) -> None:
    async with linked(real_database) as pool, rival(real_database) as other:
        await other.lock()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.read, lock)
            await other.is_waited_for()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(SOON_S):
            assert await pool.read(pid) > 0


async def test_a_pool_closed_while_in_use_keeps_no_connection(real_database: str) -> None:
    async with linked(real_database) as pool, rival(real_database) as other:
        await other.lock()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pool.read, lock)
            await other.is_waited_for()
            with anyio.fail_after(SOON_S):
                async with anyio.create_task_group() as closing:
                    closing.start_soon(pool.close)
                    await other.rollback()
