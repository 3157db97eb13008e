"""A reader that has read up to a cursor never finds a new event at or below it, however commits overtake each other."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import asyncpg
import pytest

from ocean import Clog, Event, Ocean, Ok, Tick
from tests.postgres.server import blank_database

pytestmark = pytest.mark.anyio

HOLD = """
CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(42);
  RETURN NULL;
END $$;
CREATE TRIGGER hold_up AFTER INSERT ON events FOR EACH ROW
WHEN (NEW.run_id = 'slow' AND NEW.type = 'run.signalled') EXECUTE FUNCTION hold_up();
"""
"""Number an event, and commit its transaction only when the test releases a lock."""

Deed = Callable[[Ocean, str], Coroutine[Any, Any, Any]]


async def signal(ocean: Ocean, run_id: str) -> Any:
    await ocean.signal(run_id, "quick")


async def create(ocean: Ocean, run_id: str) -> Any:
    await ocean.create_run(session_id="s", clog_id="c")


async def tick(ocean: Ocean, run_id: str) -> Any:
    await ocean.advance(run_id=run_id)


async def pause(ocean: Ocean, run_id: str) -> Any:
    await ocean.pause_run(run_id)


class Reader:
    """Reads a feed page by page, and never goes back."""

    def __init__(self, ocean: Ocean, **feed: Any) -> None:
        self._ocean, self._feed = ocean, feed
        self._after = 0
        self.seen: list[int] = []

    async def read(self) -> None:
        events = await self._ocean.read_events(**self._feed, after=self._after, limit=1_000)
        self.seen += [event.seq for event in events]
        self._after = max([self._after, *self.seen])

    async def all(self) -> list[Event]:
        return await self._ocean.read_events(**self._feed, limit=1_000)


@asynccontextmanager
async def oceans(url: str) -> AsyncIterator[tuple[Ocean, Ocean]]:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        return Ok()

    async with Ocean.open(url, clogs=[clog]) as one, Ocean.open(url, clogs=[clog]) as other:
        yield one, other


@pytest.mark.parametrize("deed", [signal, create, tick, pause], ids=lambda deed: deed.__name__)
async def test_no_feed_skips_an_event_that_was_numbered_first_and_committed_last(deed: Deed) -> None:
    url = blank_database()
    async with oceans(url) as (one, other):
        server = await asyncpg.connect(url)
        await server.execute(HOLD)
        await one.create_run(session_id="s", clog_id="c", run_id="slow")
        quick = await one.create_run(session_id="s", clog_id="c", input={})
        feeds = [{"run_id": "slow"}, {"run_id": quick.run_id}, {"session_id": "s"}, {"clog_id": "c"}, {}]
        readers = [Reader(other, **feed) for feed in feeds]
        async with anyio.create_task_group() as tasks, server.transaction():
            await server.execute("SELECT pg_advisory_xact_lock(42)")
            tasks.start_soon(one.signal, "slow", {})
            await blocked(server, 1)
            done = anyio.Event()
            tasks.start_soon(_and_then, deed(other, quick.run_id), done)
            # Either it waits for the transaction before it, or it overtakes that one: then the readers pass its cursor.
            while not done.is_set() and await waiting(server) < 2:
                await anyio.lowlevel.checkpoint()
            for reader in readers:
                await reader.read()
        for reader in readers:
            await reader.read()
            assert reader.seen == [event.seq for event in await reader.all()]
        await server.close()


async def _and_then(work: Coroutine[Any, Any, Any], done: anyio.Event) -> None:
    await work
    done.set()


async def waiting(db: "asyncpg.Connection[asyncpg.Record]") -> int:
    return int(
        await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
    )


async def blocked(db: "asyncpg.Connection[asyncpg.Record]", count: int) -> None:
    """Wait until `count` server processes wait for a lock."""
    with anyio.fail_after(20):
        while await waiting(db) < count:
            pass
