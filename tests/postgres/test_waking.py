"""Noticing others' commits: notifications shorten the wait, and nothing needs them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest

from ocean import Clog, Ocean
from ocean.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Ocean, Ocean]]:
    async with Ocean.open(url, clogs=[Clog("c")]) as one, Ocean.open(url, clogs=[Clog("c")]) as other:
        yield one, other


async def listeners(db: "asyncpg.Connection[asyncpg.Record]") -> list[int]:
    rows = await db.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'ocean listener' AND query LIKE 'LISTEN%'"
        " AND datname = current_database()"
    )
    return [row["pid"] for row in rows]


async def test_a_follower_hears_of_another_instances_event(real_database: str) -> None:
    async with two(real_database) as (one, other):
        run = await one.create_run(session_id="s", clog_id="c")
        async with anyio.create_task_group() as tasks:
            seen: list[str] = []

            async def follow() -> None:
                async for event in other.follow(run.run_id):
                    seen.append(event.type)
                    if event.type == "run.signalled":
                        return

            tasks.start_soon(follow)
            await one.signal(run.run_id, {})
        assert seen == ["run.created", "run.signalled"]


async def test_a_listener_that_is_killed_is_not_missed(real_database: str) -> None:
    async with two(real_database) as (one, other):
        run = await one.create_run(session_id="s", clog_id="c")
        db = await asyncpg.connect(real_database)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                heard = anyio.Event()

                async def wait() -> None:
                    assert isinstance(other._store, PostgresStore)
                    await other._store.next_commit(other._store.commits_seen(), look_ms=20)
                    await other._store.next_commit(other._store.commits_seen(), look_ms=20)
                    heard.set()

                tasks.start_soon(wait)
                while not (pids := await listeners(db)):
                    pass
                await db.execute("SELECT pg_terminate_backend($1)", pids[0])
                await one.signal(run.run_id, 1)
                while not heard.is_set():
                    await one.signal(run.run_id, 2)
        await db.close()


async def test_a_group_notifies_at_most_once(real_database: str) -> None:
    heard: list[str] = []
    db = await asyncpg.connect(real_database)
    await db.add_listener("ocean", lambda *facts: heard.append(str(facts[2])))
    async with Ocean.open(real_database, clogs=[Clog("c")]) as ocean:
        assert isinstance(ocean._store, PostgresStore)
        run = await ocean.create_run(session_id="s", clog_id="c")
        await db.execute("SELECT 1")
        heard.clear()
        groups = await db.fetchval("SELECT count(*) FROM ocean_groups")
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ocean.signal, run.run_id, number)
        await db.execute("SELECT 1")
        assert len(heard) <= await db.fetchval("SELECT count(*) FROM ocean_groups") - groups
        found = await ocean.get_run(run.run_id)
        assert found is not None
        assert found.pending_count == 20
    await db.close()
