"""The number of round trips between an instance and the server, counted by a proxy."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean import Clog, Done, Ocean, OceanError, Ok, Outcome, SystemClock, Tick
from ocean.compose import open_store, open_test_store
from ocean.kernel.metrics import Listener, TickSeen
from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed, RowsAsk
from ocean.state.records import ClogRecord
from ocean.testing import ManualClock
from ocean.ticker import ticker
from tests.conformance.kit import (
    CLOG,
    a_run,
    a_signal,
    an_ask,
    claim,
    commit,
    commit_of,
    pending,
    run_row,
    the_run,
    writes,
)
from tests.postgres.proxy import Proxy, proxied
from tests.postgres.tables import of_postgres

pytestmark = pytest.mark.anyio

MANY = 32


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[Store, Proxy]]:
    """A store with one connection on which every statement is already prepared."""
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


async def a_tick(store: Store, run_id: str | None = None) -> None:
    held = await claim(store, run_id)
    key = run_row(held.run.run_id)
    rows = await store.read_rows(RowsAsk(CLOG, "s", held.run.run_id, keys=(key,)))
    answer = await commit(store, held, Done(1), writes((key, rows.rows[key].version, "1")))
    assert isinstance(answer, Committed)


async def at_once(*deeds: Any) -> list[Any]:
    results: list[Any] = [None] * len(deeds)

    async def do(place: int, deed: Any) -> None:
        results[place] = await deed

    async with anyio.create_task_group() as tasks:
        for place, deed in enumerate(deeds):
            tasks.start_soon(do, place, deed)
    return results


async def test_a_claim_that_finds_nothing_is_one(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        assert await store.claim_due(an_ask()) == []
        assert await store.claim_due(an_ask(run_id="first")) == []
        await store.agenda((CLOG,))
        assert proxy.requests == 3


async def test_create_signal_claim_read_and_commit_are_one_each(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        await store.create_run(a_run("r", concurrency_keys=["k"], dedupe_key="d", attributes={"size": 1}), None)
        assert proxy.requests == 1
        await store.deliver_signal(a_signal("r", 1, signal_id="s"), None)
        assert proxy.requests == 2
        await a_tick(store)
        assert proxy.requests == 5


async def test_a_refused_or_repeated_verb_is_one(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        for _ in range(2):
            await store.create_run(a_run("r"), None)
            await store.deliver_signal(a_signal("r", 1, signal_id="s"), None)
        assert proxy.requests == 4
        for target in ("first", "nobody"):
            with pytest.raises(OceanError):
                await store.deliver_signal(a_signal(target), None)
        assert proxy.requests == 6


async def test_verbs_of_one_round_share_one(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        await at_once(*(store.create_run(a_run(f"r-{number}"), None) for number in range(MANY)))
        assert proxy.requests == 1
        await at_once(*(store.deliver_signal(a_signal(f"r-{number}"), None) for number in range(MANY)))
        assert proxy.requests == 2


async def test_a_batch_is_claimed_in_one_and_committed_in_one(real_database: str) -> None:
    async with counted(real_database) as (store, proxy):
        await at_once(*(pending(store, f"r-{number:02}") for number in range(MANY)))
        proxy.requests = 0
        claims = await store.claim_due(an_ask(limit=MANY))
        assert (len(claims), proxy.requests) == (MANY, 1)
        results = await at_once(*(store.commit_tick(commit_of(held, Done(1))) for held in claims))
        assert all(isinstance(answer, Committed) for answer in results)
        assert proxy.requests == 2


@pytest.mark.parametrize("keys", [[], ["k"]], ids=["plain", "behind a key"])
async def test_a_claim_that_first_ends_overdue_runs_is_one(database: str, keys: list[str]) -> None:
    """Here time is a row, and setting it is a statement, too: so round trips are counted by the pool."""
    clock = ManualClock()
    store = of_postgres(await open_test_store(database, clock))
    try:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        await store.create_run(a_run("overdue", deadline_at=clock.now() + 1), None)
        await pending(store, "r", concurrency_keys=keys)
        clock.advance(1)
        before = store.pool.round_trips
        assert [held.run.run_id for held in await store.claim_due(an_ask())] == ["r"]
        assert store.pool.round_trips == before + 1
        assert (await the_run(store, "overdue")).status == "failed"
    finally:
        await store.close()


@asynccontextmanager
async def poked(url: str, clog: Clog) -> AsyncIterator[tuple[Ocean, Proxy]]:
    """An instance that has already executed a tick of each kind."""
    async with proxied(f"{url}?pool=1&notify=off") as (there, proxy), Ocean.open(there, clogs=[clog]) as ocean:
        await ocean.create_run(session_id="s", clog_id="c", input={})
        await ocean.advance()
        yield ocean, proxy


async def round_trips_of_tick(ocean: Ocean, proxy: Proxy) -> int:
    """The round trips of one tick; and one to find out when to poke again, which is not part of the tick."""
    await ocean.create_run(session_id="s", clog_id="c", input={})
    proxy.requests = 0
    assert (await ocean.advance(max_ticks=1)).advanced == 1
    return proxy.requests - 1


@pytest.mark.parametrize("reads", [True, False])
async def test_a_lone_tick_is_at_most_three(real_database: str, reads: bool) -> None:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        if reads:
            await tick.read(run=True, session=True, global_=True)
            await tick.write(run=tick.number)
        await tick.emit("told", {})
        return Done()

    async with poked(real_database, clog) as (ocean, proxy):
        assert await round_trips_of_tick(ocean, proxy) == (3 if reads else 2)


async def test_a_step_is_one_more(real_database: str) -> None:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.step("once", lambda key: 1)
        await tick.write(run=tick.number)
        return Done()

    async with poked(real_database, clog) as (ocean, proxy):
        assert await round_trips_of_tick(ocean, proxy) == 4


async def test_a_streamed_batch_is_one_more(real_database: str) -> None:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.read(run=True)
        async with anyio.create_task_group() as tasks:
            for word in ("a", "b", "c"):
                tasks.start_soon(tick.stream, "word", word)
        return Done()

    async with poked(real_database, clog) as (ocean, proxy):
        assert await round_trips_of_tick(ocean, proxy) == 4


async def test_a_function_whose_row_has_changed_is_one_more_and_no_second_call(real_database: str) -> None:
    clog = Clog("c")
    calls: list[int] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        calls.append(tick.number)
        await tick.read(global_=True)
        if len(calls) > 1:
            await other.call_clog(clog_id="c", session_id="s", method="add", payload=10)
        await tick.write(global_=lambda old: (old or 0) + 1)
        return Done()

    @clog.method
    async def add(tick: Tick, payload: int) -> int:
        found = (await tick.read(global_=True)).global_
        await tick.write(global_=lambda old: (old or 0) + payload)
        return found or 0

    async with poked(real_database, clog) as (ocean, proxy), Ocean.open(real_database, clogs=[clog]) as other:
        calls[:] = [0]
        assert await round_trips_of_tick(ocean, proxy) == 4
        assert len(calls) == 2
        assert (await ocean.call_clog(clog_id="c", session_id="s", method="add", payload=0)) == 1 + 10 + 1


async def test_a_named_run_is_not_looked_for_again_after_its_tick(real_database: str) -> None:
    """Reading the run, its claim, its commit, and what is due then."""
    clog = Clog("quick")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Done()

    async with counted(real_database) as (store, proxy):
        ocean = Ocean(store, [clog], store.clock)
        await ocean.start()
        for run_id in ("prepared", "r"):
            await store.create_run(a_run(run_id, clog_id="quick", input=1), None)
            proxy.requests = 0
            assert (await ocean.advance(run_id=run_id)).advanced == 1
        assert proxy.requests == 4


class Counting(Listener):
    """Records the number of round trips when a tick is committed."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.counts: list[int] = []

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[Any]:
        return self._around()

    @contextmanager
    def _around(self) -> Iterator[None]:
        yield
        self.counts.append(self._proxy.requests)


async def test_a_signal_to_an_idle_run_and_its_committed_tick_are_two(real_database: str) -> None:
    """No search for other due runs happens before that."""
    clog = Clog("quick")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Ok()

    async with counted(real_database) as (store, proxy):
        ocean = Ocean(store, [clog], store.clock)
        await ocean.start()
        counting = Counting(proxy)
        ocean.observed.add_listener(counting)
        await store.create_run(a_run("r", clog_id="quick"), None)
        async with ticker(ocean):
            for number in range(3):
                while not of_postgres(store).batches.pending_claims._waiting:
                    await anyio.lowlevel.checkpoint()
                proxy.requests = 0
                await store.deliver_signal(a_signal("r"), None)
                while len(counting.counts) <= number:
                    await anyio.lowlevel.checkpoint()
        assert counting.counts[1:] == [2, 2]
