"""Time limits, set for each connection, so that no client waits forever or makes others wait."""

import anyio
import asyncpg
import pytest

from ocean import StoreBusy
from ocean.stores.postgres.client.options import options_from
from tests.postgres.notes import desk, notes_database, words_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> str:
    return notes_database()


async def test_a_write_waits_a_limited_time_for_the_commit_of_another(url: str) -> None:
    db = await asyncpg.connect(url)
    async with desk(f"{url}?lock_ms=100") as d:
        async with db.transaction():
            await db.execute("SELECT ocean_lock()")
            with anyio.fail_after(20), pytest.raises(StoreBusy, match="is busy"):
                await d.note("a")
        assert await words_in(url) == []
        await d.note("b")
        assert await words_in(url) == ["b"]
        # What the server has refused need not be looked up.
        assert d.pool.round_trips == 2
    await db.close()


async def test_a_statement_runs_for_a_limited_time(url: str) -> None:
    async with desk(f"{url}?statement_ms=100") as d:
        with anyio.fail_after(20), pytest.raises(StoreBusy, match="is busy"):
            await d.pool.read(lambda db: db.fetchval("SELECT pg_sleep(60)"))
        await d.note("a")


async def test_an_idle_open_transaction_is_terminated(url: str) -> None:
    options = options_from(f"{url}?lock_ms=300")
    idle = await asyncpg.connect(options.url, **options.connect_arguments("idle"))
    held = idle.transaction()
    await held.start()
    await idle.execute("SELECT ocean_lock()")
    async with desk(url) as d:
        with anyio.fail_after(20):
            await d.note("a")
    assert idle.is_closed()


async def test_behind_a_pooler_only_the_driver_limits_the_time(url: str) -> None:
    options = options_from(f"{url}?pooler=on&statement_ms=100")
    assert "server_settings" not in options.connect_arguments("x")
    async with desk(f"{url}?pooler=on&statement_ms=100", retry_pauses_ms=(0,)) as d:
        with anyio.fail_after(20), pytest.raises(StoreBusy, match="cannot be reached"):
            await d.pool.read(lambda db: db.fetchval("SELECT pg_sleep(60)"))
        await d.note("a")
