"""A thousand takes from a cap of a hundred: exactly a hundred are granted, and few calls are repeated."""

from typing import Any

import anyio
import pytest

from ocean import Clog, Done, Outcome, Tick
from tests.lifecycle.acting import Script, log, stage, start

pytestmark = pytest.mark.anyio

TAKERS, CAP = 1_000, 100


async def test_a_thousand_ticks_take_a_cap_of_a_hundred_exactly(url: str) -> None:
    async def act(tick: Tick) -> Outcome:
        return Done((await tick.take("cap", limit=CAP)).ok)

    clog = Script(act)
    async with stage(clog, url=url) as w:
        runs = [await start(w) for _ in range(TAKERS)]
        await w.drain()
        pages = [await w.ocean.get_run(run_id) for run_id in runs]
        assert sum(bool(info and info.output) for info in pages) == CAP
        assert (await w.ocean.take("cap", 0, limit=CAP)).used == CAP
        assert {seen.attempt for seen in clog.seen} == {0}
        assert max(seen.call for seen in clog.seen) <= 2, "a key that was refused once is not taken from again"
        assert len(clog.seen) <= TAKERS + 32, "only those at work when it ran out are called again"


async def test_a_thousand_ticks_that_have_all_looked_before_any_takes() -> None:
    looked, go = 0, anyio.Event()

    async def act(tick: Tick) -> Outcome:
        nonlocal looked
        taken = await tick.take("cap", limit=CAP)
        if tick.call_number == 1:
            looked += 1
            if looked == TAKERS:
                go.set()
            await go.wait()
        return Done(taken.ok)

    clog = Script(act, tick_ms=10_000_000)
    async with stage(clog) as w:
        for _ in range(TAKERS):
            await start(w)
        poked = await w.ocean.advance(concurrency=TAKERS, budget_ms=60_000)
        assert poked.advanced == TAKERS
        page: list[Any] = [run.output for run in (await w.ocean.list_runs(limit=1_000)).runs]
        assert (page.count(True), page.count(False)) == (CAP, TAKERS - CAP)
        assert len(clog.seen) == TAKERS + TAKERS - CAP
        assert len(await log(w, type="tick.restarted")) == TAKERS - CAP


async def test_a_thousand_direct_calls_and_outsiders_share_a_cap(url: str) -> None:
    clog = Clog("c")
    results: list[bool] = []

    @clog.method
    async def grab(tick: Tick, payload: Any) -> bool:
        return (await tick.take("cap", limit=CAP)).ok

    async with stage(clog, url=url) as w:

        async def call() -> None:
            results.append(await w.ocean.call_clog(clog_id="c", method="grab"))

        async def take() -> None:
            results.append((await w.ocean.take("cap", limit=CAP)).ok)

        async with anyio.create_task_group() as tasks:
            for i in range(TAKERS):
                tasks.start_soon(call if i % 2 else take)
        assert (results.count(True), len(results)) == (CAP, TAKERS)
