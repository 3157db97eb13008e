"""How often an instance and the server speak: counted where the bytes go by."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from ocean import Clog, Done, Ocean, Ok, Outcome, SystemClock, Tick
from ocean.compose import open_store
from ocean.kernel.records import Claim, ClogRecord
from ocean.kernel.store import Committed, RowsAsk, Store
from ocean.testing import world
from tests.conformance.kit import CLOG, a_run, a_signal, an_ask, claim, commit_of, pending, run_row, writes
from tests.postgres.proxy import Proxy, proxied

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[Store, Proxy]]:
    """With one connection, on which every statement has been prepared: that is once for all."""
    async with proxied(f"{url}?pool=1&notify=off") as (there, proxy):
        store = await open_store(there, SystemClock())
        try:
            await store.register_clogs([ClogRecord(CLOG, "1", False)])
            await pending(store, "first")
            await a_tick(store, "first")
            proxy.requests = 0
            yield store, proxy
        finally:
            await store.close()


async def a_tick(store: Store, run_id: str | None = None) -> Claim:
    held = await claim(store, run_id)
    key = run_row(held.run.run_id)
    rows = await store.read_rows(RowsAsk(CLOG, "s", held.run.run_id, keys=(key,)))
    commit = commit_of(held, Done(1), writes((key, rows.rows[key].version, "1")))
    answer = await store.commit_tick(commit)
    assert isinstance(answer, Committed)
    return held


@pytest.mark.parametrize("rows", [{"run": True}, {"run": True, "session": True, "global_": True}, {}])
async def test_a_lone_tick_is_three_round_trips(real_database: str, rows: dict[str, bool]) -> None:
    """The claim looks, and writes; what a handler begins by reading has come along; the commit writes."""
    counts: list[int] = []
    clog = Clog("c")
    async with proxied(f"{real_database}?pool=1&notify=off") as (url, proxy):

        @clog.on_advance
        async def advance(tick: Tick) -> Outcome:
            counts.append(proxy.requests)
            if rows:
                await tick.read(run=True, session=rows.get("session", False), global_=rows.get("global_", False))
                await tick.write(run=tick.number)
            counts.append(proxy.requests)
            return Done()

        async with Ocean.open(url, clogs=[clog]) as ocean:
            for _ in range(2):
                await ocean.create_run(session_id="s", clog_id="c", input={})
                proxy.requests = 0
                counts.clear()
                poked = await ocean.advance(max_ticks=1)
                assert poked.advanced == 1
            assert counts == [2, 2]
            # And one more to say when to poke again.
            assert proxy.requests == 3 + 1


async def test_a_tick_that_reads_other_rows_or_reads_later_is_four_round_trips(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        await pending(store, "r")
        proxy.requests = 0
        await a_tick(store)
        assert proxy.requests == 4


async def test_who_has_waited_for_anything_reads_what_is_there_now(database: str) -> None:
    """A handler that lets the rows that came with its claim change, and then reads, finds them changed."""
    clog = Clog("c")
    found: list[object] = []

    @clog.method
    async def put(tick: Tick, payload: int) -> None:
        await tick.read(run=True)
        await tick.write(run=payload)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await w.ocean.call_clog(run_id=tick.run_id, method="put", payload=7)
        found.append((await tick.read(run=True)).run)
        await tick.write(run=8)
        return Done()

    async with world([clog], url=database) as w:
        await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain()
        assert found == [7]


async def test_a_creation_a_signal_and_a_look_that_finds_nothing(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        await store.claim_due(an_ask())
        assert proxy.requests == 1
        await store.create_run(a_run("r"), None)
        assert proxy.requests == 3
        await store.deliver_signal(a_signal("r", 1, signal_id="s"), None)
        assert proxy.requests == 5
        await store.deliver_signal(a_signal("r", 1, signal_id="s"), None)
        assert proxy.requests == 6


async def test_a_batch_is_claimed_and_committed_in_the_same_number(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        for number in range(8):
            await pending(store, f"r-{number}")
        proxy.requests = 0
        claims = await store.claim_due(an_ask(limit=8))
        assert (len(claims), proxy.requests) == (8, 2)
        async with anyio.create_task_group() as tasks:
            for held in claims:
                tasks.start_soon(store.commit_tick, commit_of(held, Ok()))
        assert proxy.requests <= 4
