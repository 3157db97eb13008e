"""The connection that listens: it dies with or without a word, and another takes its place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import asyncpg
import pytest

from ocean import StoreUnusable, SystemClock
from ocean.stores.postgres.client.connection import Link
from ocean.stores.postgres.client.notifications import Waking
from ocean.stores.postgres.client.options import options_from
from tests.postgres.proxy import proxied

pytestmark = pytest.mark.anyio

NEVER_MS = 3_600_000
"""Who looks for others' commits that seldom is told of them, or hears nothing."""
END_LISTENERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'ocean listener' AND datname = current_database()"
)
EVENT = "INSERT INTO events (seq, ts, type, payload) VALUES (nextval('ocean_cursor'), 1, 'told', '{}')"


@asynccontextmanager
async def waking(url: str, probe_ms: int = NEVER_MS) -> AsyncIterator[Waking]:
    link = Link(options_from(url), SystemClock())
    await link.open()
    waking = Waking(link, probe_ms=probe_ms)
    waking.open()
    try:
        yield waking
    finally:
        await waking.close()
        await link.close()


async def commit(url: str, *, is_told: bool = True) -> None:
    db = await asyncpg.connect(url)
    async with db.transaction():
        await db.execute(EVENT)
        if is_told:
            await db.execute("NOTIFY ocean")
    await db.close()


async def someone_listens(waking: Waking, url: str, times: int = 1) -> None:
    """Until so many listeners have begun, and what the last has looked at for that is seen."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waking.next_commit, NEVER_MS, NEVER_MS)
        with anyio.fail_after(20):
            while waking.listeners < times:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def hears(waking: Waking, url: str, *, is_told: bool = True) -> None:
    seen = waking.commits_seen()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waking.next_commit, seen, NEVER_MS)
        await anyio.wait_all_tasks_blocked()
        await commit(url, is_told=is_told)


async def test_a_commit_that_is_told_is_heard_at_once(real_database: str) -> None:
    async with waking(real_database) as w:
        await someone_listens(w, real_database)
        with anyio.fail_after(20):
            await hears(w, real_database)
            await hears(w, real_database)


async def test_what_was_committed_from_here_is_not_looked_for(real_database: str) -> None:
    async with waking(real_database) as w:
        await someone_listens(w, real_database)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.next_commit, NEVER_MS, NEVER_MS)
            await anyio.wait_all_tasks_blocked()
            seen, looks = w.commits_seen(), w.looks
            for _ in range(8):
                await w._link.reach(lambda db: db.execute(f"{EVENT}; NOTIFY ocean"))
                # WorldResponse after it is told.
                assert w._listening is not None
                await w._ask(w._listening)
            await commit(real_database)
            with anyio.fail_after(20):
                # The other's, which is told after the own one.
                await w.next_commit(seen, NEVER_MS)
            tasks.cancel_scope.cancel()
        # One for the other's; and one may still have been on its way.
        assert w.looks <= looks + 2


@pytest.mark.parametrize("query", ["notify=off", "pooler=on"])
async def test_without_a_listener_it_is_found_by_looking(real_database: str, query: str) -> None:
    async with waking(f"{real_database}?{query}") as w:
        with anyio.fail_after(20):
            await commit(real_database)
            seen = await w.next_commit(0, 20)
            await commit(real_database)
            await w.next_commit(seen, 20)
        assert w.listeners == 0


async def test_who_cannot_wait_as_long_hastens_the_others_look(real_database: str) -> None:
    async with waking(f"{real_database}?notify=off") as w:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.next_commit, 0, NEVER_MS)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(w.next_commit, 0, 20)
                await commit(real_database)


async def test_a_listener_that_dies_without_a_word_is_found_out_and_what_it_missed_too(real_database: str) -> None:
    async with proxied(real_database) as (url, proxy), waking(url, probe_ms=100) as w:
        await someone_listens(w, real_database)
        proxy.freeze(b"LISTEN")
        with anyio.fail_after(20):
            # It is told to the one that is dead. Whoever waits to hear of it looks by another connection.
            await hears(w, real_database)
            await someone_listens(w, real_database, 2)
            await hears(w, real_database)
        assert w.listeners == 2


async def test_whoever_looks_does_so_by_the_listener(real_database: str) -> None:
    async with waking(real_database) as w:
        await someone_listens(w, real_database)
        pooled, looks = w._link.round_trips, w.looks
        with anyio.fail_after(20):
            await hears(w, real_database)
        assert (w._link.round_trips, w.looks > looks) == (pooled, True)


async def test_a_listener_whose_connection_is_closed_is_replaced_at_once(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    async with waking(real_database) as w:
        await someone_listens(w, real_database)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.next_commit, w.commits_seen(), NEVER_MS)
                await db.execute(END_LISTENERS)
                await commit(real_database, is_told=False)
    await db.close()


async def test_whoever_waits_at_the_end_is_told_of_it(real_database: str) -> None:
    async with anyio.create_task_group() as tasks, waking(real_database) as w:

        async def wait() -> None:
            with pytest.raises(StoreUnusable, match="closed"):
                await w.next_commit(NEVER_MS, NEVER_MS)

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()


async def test_a_server_that_ends_every_listener_is_not_asked_all_the_time(real_database: str) -> None:
    """As behind a pooler that nobody has told us of: each pause is longer, though each listener has begun."""
    db = await asyncpg.connect(real_database)
    async with waking(real_database) as w, anyio.create_task_group() as tasks:
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
