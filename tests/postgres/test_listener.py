"""The connection that listens: it breaks with or without notice, and is replaced."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import asyncpg
import pytest

from ocean import StoreUnusable, SystemClock
from ocean.stores.postgres.client.connection import ConnectionPool
from ocean.stores.postgres.client.notifications import Notifications
from ocean.stores.postgres.client.options import options_from
from tests.postgres.proxy import proxied

pytestmark = pytest.mark.anyio

NEVER_MS = 3_600_000
"""With polls this rare, a commit of another process is noticed by a notification or not at all."""
END_LISTENERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'ocean listener' AND datname = current_database()"
)
EVENT = "INSERT INTO events (seq, ts, type, payload) VALUES (nextval('ocean_cursor'), 1, 'told', '{}')"


@asynccontextmanager
async def notifications(url: str, probe_ms: int = NEVER_MS) -> AsyncIterator[Notifications]:
    pool = ConnectionPool(options_from(url), SystemClock())
    await pool.open()
    notifications = Notifications(pool, probe_ms=probe_ms)
    notifications.open()
    try:
        yield notifications
    finally:
        await notifications.close()
        await pool.close()


async def commit(url: str, *, is_notified: bool = True) -> None:
    db = await asyncpg.connect(url)
    async with db.transaction():
        await db.execute(EVENT)
        if is_notified:
            await db.execute("NOTIFY ocean")
    await db.close()


async def wait_for_listener(notifications: Notifications, url: str, times: int = 1) -> None:
    """Wait until `times` listeners have started, and the poll of the last one is done."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifications.next_commit, NEVER_MS, NEVER_MS)
        with anyio.fail_after(20):
            while notifications.listeners < times:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def check_commit_is_noticed(notifications: Notifications, url: str, *, is_notified: bool = True) -> None:
    seen = notifications.commits_seen()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifications.next_commit, seen, NEVER_MS)
        await anyio.wait_all_tasks_blocked()
        await commit(url, is_notified=is_notified)


async def test_a_notified_commit_is_noticed_at_once(real_database: str) -> None:
    async with notifications(real_database) as w:
        await wait_for_listener(w, real_database)
        with anyio.fail_after(20):
            await check_commit_is_noticed(w, real_database)
            await check_commit_is_noticed(w, real_database)


async def test_a_commit_of_this_process_causes_no_poll(real_database: str) -> None:
    async with notifications(real_database) as w:
        await wait_for_listener(w, real_database)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.next_commit, NEVER_MS, NEVER_MS)
            await anyio.wait_all_tasks_blocked()
            seen, looks = w.commits_seen(), w.polls
            for _ in range(8):
                await w._pool.reach(lambda db: db.execute(f"{EVENT}; NOTIFY ocean"))
                # The result comes after the notification.
                assert w._listening is not None
                await w._read_by(w._listening)
            await commit(real_database)
            with anyio.fail_after(20):
                # The other client's commit, which is notified after the own one.
                await w.next_commit(seen, NEVER_MS)
            tasks.cancel_scope.cancel()
        # One for the other client's commit; and one may still have been in flight.
        assert w.polls <= looks + 2


@pytest.mark.parametrize("query", ["notify=off", "pooler=on"])
async def test_without_a_listener_a_commit_is_found_by_polling(real_database: str, query: str) -> None:
    async with notifications(f"{real_database}?{query}") as w:
        with anyio.fail_after(20):
            await commit(real_database)
            seen = await w.next_commit(0, 20)
            await commit(real_database)
            await w.next_commit(seen, 20)
        assert w.listeners == 0


async def test_a_waiter_with_a_shorter_interval_shortens_the_next_poll(real_database: str) -> None:
    async with notifications(f"{real_database}?notify=off") as w:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.next_commit, 0, NEVER_MS)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(w.next_commit, 0, 20)
                await commit(real_database)


async def test_a_listener_that_dies_silently_is_replaced_and_what_it_missed_is_found(real_database: str) -> None:
    async with proxied(real_database) as (url, proxy), notifications(url, probe_ms=100) as w:
        await wait_for_listener(w, real_database)
        proxy.freeze(b"LISTEN")
        with anyio.fail_after(20):
            # The notification goes to the dead listener. The poll uses another connection.
            await check_commit_is_noticed(w, real_database)
            await wait_for_listener(w, real_database, 2)
            await check_commit_is_noticed(w, real_database)
        assert w.listeners == 2


async def test_polls_use_the_listener(real_database: str) -> None:
    async with notifications(real_database) as w:
        await wait_for_listener(w, real_database)
        pooled, looks = w._pool.round_trips, w.polls
        with anyio.fail_after(20):
            await check_commit_is_noticed(w, real_database)
        assert (w._pool.round_trips, w.polls > looks) == (pooled, True)


async def test_a_listener_whose_connection_is_closed_is_replaced_at_once(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    async with notifications(real_database) as w:
        await wait_for_listener(w, real_database)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.next_commit, w.commits_seen(), NEVER_MS)
                await db.execute(END_LISTENERS)
                await commit(real_database, is_notified=False)
    await db.close()


async def test_tasks_that_wait_when_it_closes_get_store_unusable(real_database: str) -> None:
    async with anyio.create_task_group() as tasks, notifications(real_database) as w:

        async def wait() -> None:
            with pytest.raises(StoreUnusable, match="closed"):
                await w.next_commit(NEVER_MS, NEVER_MS)

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()


async def test_a_server_that_closes_every_listener_is_retried_with_pauses(real_database: str) -> None:
    """As behind an undeclared pooler: each pause is longer, although each listener has started."""
    db = await asyncpg.connect(real_database)
    async with notifications(real_database) as w, anyio.create_task_group() as tasks:
        tasks.start_soon(w.next_commit, NEVER_MS, NEVER_MS)
        loop, begun = asyncio.get_running_loop(), []
        with anyio.fail_after(20):
            for number in range(1, 5):
                while w.listeners < number:
                    await anyio.lowlevel.checkpoint()
                begun.append(loop.time())
                await db.execute(END_LISTENERS)
        pauses = [later - earlier for earlier, later in pairwise(begun)]
        assert all(pause >= 0.05 * 2**number for number, pause in enumerate(pauses))
        tasks.cancel_scope.cancel()
    await db.close()
