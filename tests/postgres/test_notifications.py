"""Noticing commits of other processes: notifications shorten the wait, but nothing depends on them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest

from ocean import Clog, Ocean, Ok, RunNotFound, Tick
from tests.postgres.proxy import proxied

pytestmark = pytest.mark.anyio


async def test_a_follower_gets_an_event_of_another_instance(real_database: str) -> None:
    async with (
        Ocean.open(real_database, clogs=[Clog("c")]) as one,
        Ocean.open(real_database, clogs=[Clog("c")]) as other,
    ):
        run = await one.create_run(session_id="s", clog_id="c")
        seen: list[str] = []

        async def follow() -> None:
            async for event in other.follow(run.run_id):
                seen.append(event.type)
                if event.type == "run.signalled":
                    return

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await one.signal(run.run_id, {})
        assert seen == ["run.created", "run.signalled"]


class NotificationCounter:
    def __init__(self, db: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._db = db
        self._received: list[object] = []

    async def listen(self) -> None:
        await self._db.add_listener("ocean", lambda *facts: self._received.append(facts))

    async def count(self) -> int:
        """The number of notifications since the last call: they arrive before the result of any later statement."""
        await self._db.execute("SELECT 1")
        received, self._received = self._received, []
        return len(received)


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[NotificationCounter]:
    db = await asyncpg.connect(url)
    counter = NotificationCounter(db)
    await counter.listen()
    try:
        yield counter
    finally:
        await db.close()


async def test_a_group_notifies_once_however_much_is_in_it(real_database: str) -> None:
    async with (
        listening(real_database) as counter,
        proxied(real_database) as (url, proxy),
        Ocean.open(url, clogs=[Clog("c")]) as ocean,
    ):
        run = await ocean.create_run(session_id="s", clog_id="c")
        await counter.count()
        proxy.arm("held", b"first")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ocean.signal, run.run_id, "first")
            await proxy.has_cut.wait()
            for number in range(20):
                tasks.start_soon(ocean.signal, run.run_id, number)
            await anyio.wait_all_tasks_blocked()
            proxy.lets_go.set()
        assert await counter.count() == 2
        found = await ocean.get_run(run.run_id)
        assert found is not None
        assert found.pending_count == 21


async def test_a_claim_a_read_or_a_refusal_sends_no_notification(real_database: str) -> None:
    """A poke that finds nothing, a claim, and a refusal append no event."""
    clog = Clog("c")
    claimed: list[int] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        claimed.append(await counter.count())
        for number in range(10):
            await tick.emit("said", number)
        return Ok()

    async with listening(real_database) as counter, Ocean.open(real_database, clogs=[clog]) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="c")
        await counter.count()
        await ocean.advance()
        with pytest.raises(RunNotFound):
            await ocean.signal("nobody", {})
        await ocean.read_events(run.run_id)
        assert await counter.count() == 0
        await ocean.signal(run.run_id, {})
        assert await counter.count() == 1
        await ocean.advance()
        assert (claimed, await counter.count()) == ([0], 1)
