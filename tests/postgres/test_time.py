"""Time is the server's: hosts whose clocks are an hour wrong neither take over locks nor wake early."""

import anyio
import asyncpg
import pytest

from ocean import Clog, Done, Ocean, Ok, Outcome, SystemClock, Tick, Wait
from ocean.compose import open_store
from ocean.state.records import ClogRecord
from ocean.stores.postgres.store import PostgresStore
from tests.conformance.kit import CLOG, an_ask

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000


class Wrong(SystemClock):
    """A host whose clock is off."""

    def __init__(self, by_ms: int) -> None:
        self.by_ms = by_ms

    def now(self) -> int:
        return super().now() + self.by_ms


async def server_time(url: str) -> int:
    db = await asyncpg.connect(url)
    try:
        return int(await db.fetchval("SELECT ocean_now()"))
    finally:
        await db.close()


async def test_an_instance_an_hour_ahead_does_not_take_what_another_has_locked(real_database: str) -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    calls = 0

    async def advance(tick: Tick) -> Outcome:
        nonlocal calls
        calls += 1
        begun.set()
        await go_on.wait()
        return Done(tick.attempt)

    slow, fast = Clog("c"), Clog("c")
    slow.on_advance(advance)
    fast.on_advance(advance)
    async with (
        Ocean.open(real_database, clogs=[slow], clock=Wrong(-HOUR_MS)) as behind,
        Ocean.open(real_database, clogs=[fast], clock=Wrong(HOUR_MS)) as ahead,
        anyio.create_task_group() as tasks,
    ):
        run = await behind.create_run(session_id="s", clog_id="c", input={})
        tasks.start_soon(behind.advance)
        await begun.wait()
        poked = await ahead.advance(budget_ms=0)
        assert poked.outcomes == ()
        explained = await ahead.explain(run.run_id)
        assert [hold.code for hold in explained.holds] == ["locked"]
        go_on.set()
        assert await ahead.result(run.run_id, timeout_ms=20_000) == 0
        assert calls == 1


@pytest.mark.parametrize("off_ms", [-HOUR_MS, HOUR_MS])
async def test_a_wrong_host_writes_the_servers_time_and_waits_for_it(real_database: str, off_ms: int) -> None:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Wait(for_ms=10 * HOUR_MS) if tick.number == 1 else Ok()

    async with Ocean.open(real_database, clogs=[clog], clock=Wrong(off_ms)) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="c", input={})
        poked = await ocean.advance()
        found = await ocean.get_run(run.run_id)
        now = await server_time(real_database)
        assert found is not None
        assert found.wake_at is not None
        assert abs(found.created_at - now) < HOUR_MS / 2
        assert abs(found.wake_at - now - 10 * HOUR_MS) < HOUR_MS / 2
        assert (poked.advanced, poked.due_now) == (1, 0)
        events = await ocean.read_events(run.run_id)
        assert all(abs(event.ts - now) < HOUR_MS / 2 for event in events)
        swept = await ocean.sweep(events_older_than_ms=HOUR_MS // 2)
        assert swept.events == 0


async def test_the_servers_time_is_known_from_the_start_and_from_every_result(real_database: str) -> None:
    clock = Wrong(HOUR_MS)
    store = await open_store(real_database, clock)
    assert isinstance(store, PostgresStore)
    try:
        assert abs(store.clock.now() - await server_time(real_database)) < 5_000
        for off_ms in (-HOUR_MS, 0):
            clock.by_ms = off_ms
            before = store.pool.round_trips
            await (store.claim_due(an_ask()) if off_ms else store.register_clogs([ClogRecord(CLOG, "1", False)]))
            assert store.pool.round_trips == before + 1
            assert abs(store.clock.now() - await server_time(real_database)) < 5_000
    finally:
        await store.close()
