"""Callers cancelled at every possible point leave nothing behind, neither in the process nor in the database."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import asyncpg
import pytest

from ocean import SystemClock
from ocean.stores.postgres.client.lock_thread import LockThread
from ocean.stores.postgres.client.notifications import Notifications
from ocean.stores.postgres.client.options import options_from
from tests.postgres.notes import Desk, desk, notes_database, words_in

pytestmark = pytest.mark.anyio

POINTS = 25
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ocean' AND datname = current_database()"
Deed = Callable[[Desk], Coroutine[Any, Any, Any]]


@pytest.fixture
def url() -> str:
    return notes_database()


async def write(desk: Desk) -> Any:
    return await desk.note("w")


async def claim(desk: Desk) -> Any:
    return await desk.batches.claim({"words": ["w"]})


async def read(desk: Desk) -> Any:
    return await desk.pool.read(lambda db: db.fetchval("SELECT count(*) FROM notes"))


async def cancelled_after(points: int, work: Coroutine[Any, Any, Any]) -> bool:
    """Whether it was executed nevertheless."""
    done = False

    async def run() -> None:
        nonlocal done
        await work
        done = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        for _ in range(points):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    return done


@pytest.mark.parametrize("deed", [write, claim, read], ids=lambda deed: deed.__name__)
async def test_a_cancelled_caller_leaves_nothing_open(url: str, deed: Deed) -> None:
    tasks = len(asyncio.all_tasks())
    db = await asyncpg.connect(url)
    done = 0
    async with desk(f"{url}?pool=2") as d:
        for points in range(1, POINTS):
            done += await cancelled_after(points, deed(d))
        # Both connections are free, and neither has an open transaction.
        with anyio.fail_after(20):
            async with anyio.create_task_group() as both:
                for _ in range(2):
                    both.start_soon(read, d)
        open_ones = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ocean' AND datname = current_database()"
        )
        assert await db.fetchval(f"{open_ones} AND state <> 'idle'") == 0
        assert await db.fetchval(open_ones) <= 2
        if deed is not read:
            assert len(await words_in(url)) == done == POINTS - 1
    await db.close()
    assert len(asyncio.all_tasks()) == tasks


async def test_closing_leaves_no_task_and_no_thread(url: str) -> None:
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    async with desk(url) as d:
        notifications = Notifications(d.pool)
        notifications.open()
        lock_thread = LockThread(options_from(url), SystemClock())
        lock_thread.write("note", {"word": "a"})
        for points in range(POINTS):
            assert not await cancelled_after(points, notifications.next_commit(1_000, 1))
        await notifications.close()
        lock_thread.close()
    assert (len(asyncio.all_tasks()), threading.active_count()) == (tasks, threads)


async def test_a_listener_closed_while_it_starts_logs_nothing(url: str) -> None:
    async with desk(url) as d:
        for points in range(POINTS):
            notifications = Notifications(d.pool)
            notifications.open()
            assert not await cancelled_after(points, notifications.next_commit(1_000, 1))
            await notifications.close()
