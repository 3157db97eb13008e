"""A watched run is advanced when it is due; an unwatched one is not."""

import asyncio
from collections.abc import Callable

import anyio
import pytest

from ocean import Clog, Continue, Done, Ok, Outcome, RunStatus, StoreBusy, Tick, Wait
from ocean.kernel.coordinator import Coordinator
from ocean.kernel.poke_sources import PokeSource
from ocean.testing import World
from ocean.ticker import ticker
from tests.lifecycle.acting import Script, let_others_go_on, log, look, stage, start, start_idle
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


async def reaches(w: World, run_id: str, status: RunStatus) -> None:
    """Wait until another task has brought the run to the status."""
    with anyio.fail_after(20):
        while (await look(w, run_id)).status is not status:
            pass


async def test_a_watched_run_is_advanced_to_its_end() -> None:
    async with stage(Script(Continue(), Continue(), Done(7))) as w:
        run_id, other = await start(w), await start(w)
        with w.ocean.watching(run_id):
            await reaches(w, run_id, RunStatus.DONE)
            await until(lambda: w.ocean._watches.pokers == 0)
        assert (await look(w, other)).status is RunStatus.PENDING


async def test_a_watched_run_is_advanced_when_its_time_comes_or_a_signal() -> None:
    script = Script(Wait(for_ms=60_000), Ok(), Done())
    async with stage(script) as w:
        run_id = await start(w)
        with w.ocean.watching(run_id):
            await reaches(w, run_id, RunStatus.WAITING)
            await let_others_go_on(w)
            w.clock.advance(59_999)
            await let_others_go_on(w)
            assert len(script.seen) == 1
            w.clock.advance(1)
            await reaches(w, run_id, RunStatus.IDLE)
            await w.ocean.signal(run_id, "go on")
            await reaches(w, run_id, RunStatus.DONE)


async def test_all_watchers_of_a_run_share_one_poker() -> None:
    async with stage(Script(Ok())) as w:
        one, two = await start_idle(w), await start_idle(w)
        with w.ocean.watching(one), w.ocean.watching(two), w.ocean.watching(one):
            await let_others_go_on(w)
            assert (w.ocean._watches.pokers, w.ocean._watches.watched_runs) == (2, 2)
        await until(lambda: w.ocean._watches.pokers == 0)
        assert (w.ocean._watches.watched_runs, w.ocean._tail.followers, w.ocean._tail.is_running) == (0, 0, False)


async def test_a_run_that_is_no_longer_watched_is_not_advanced() -> None:
    async with stage(Script(Ok())) as w:
        run_id = await start_idle(w)
        with w.ocean.watching(run_id):
            with w.ocean.watching(run_id):
                await let_others_go_on(w)
            await w.ocean.signal(run_id, 1)
            await reaches(w, run_id, RunStatus.IDLE)
        await until(lambda: w.ocean._watches.pokers == 0)
        await w.ocean.signal(run_id, 2)
        await let_others_go_on(w)
        assert (await look(w, run_id)).status is RunStatus.PENDING


async def test_a_tick_that_has_begun_is_finished_although_the_watcher_leaves() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def advance(tick: Tick) -> Outcome:
        begun.set()
        await go_on.wait()
        return Ok()

    async with stage(Script(advance)) as w:
        run_id = await start(w)
        with w.ocean.watching(run_id):
            await begun.wait()
        await let_others_go_on(w)
        go_on.set()
        await until(lambda: w.ocean._watches.pokers == 0)
        assert await log(w, run_id, "tick.given_back") == []
        assert (await look(w, run_id)).status is RunStatus.IDLE


async def test_an_ocean_that_closes_gives_back_what_it_advances_for_watchers() -> None:
    begun = anyio.Event()

    async def advance(tick: Tick) -> Outcome:
        begun.set()
        await anyio.sleep_forever()
        return Ok()

    before = len(asyncio.all_tasks())
    async with stage(Script(advance)) as w:
        run_id = await start(w)
        with w.ocean.watching(run_id):
            await begun.wait()
            await w.ocean._watches.close()
            assert (await look(w, run_id)).status is RunStatus.PENDING
    assert len(asyncio.all_tasks()) == before


async def test_a_due_run_that_cannot_be_claimed_is_retried_less_and_less_often() -> None:
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        await w.ocean.pause_clog("c")
        tried = _counted(w)
        with w.ocean.watching(run_id):
            await until(lambda: tried() == 1)
            for ms, attempts in ((999, 1), (1, 2), (1_999, 2), (1, 3), (4_000, 4)):
                await let_others_go_on(w)
                w.clock.advance(ms)
                await let_others_go_on(w)
                assert tried() == attempts
            await w.ocean.resume_clog("c")
            w.clock.advance(30_000)
            await reaches(w, run_id, RunStatus.DONE)


async def test_a_watcher_survives_a_failed_poke() -> None:
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        tried = _counted(w, StoreBusy("busy"))
        with w.ocean.watching(run_id):
            await until(lambda: tried() == 1)
            await let_others_go_on(w)
            w.clock.advance(1_000)
            await reaches(w, run_id, RunStatus.DONE)


async def test_a_watched_run_is_left_to_a_poke_of_everything_that_has_its_turn() -> None:
    begun, go_on = anyio.Event(), anyio.Event()

    async def slowly(tick: Tick) -> Outcome:
        begun.set()
        await go_on.wait()
        return Done()

    async with stage(Script(slowly), Script(Done(), clog_id="quick")) as w, anyio.create_task_group() as tasks:
        await start(w)
        watched = await start_idle(w, clog_id="quick")
        tasks.start_soon(w.ocean.coordinator.poke_everything, 1_000, "request")
        await begun.wait()
        with w.ocean.watching(watched):
            await let_others_go_on(w)
            await w.ocean.signal(watched, 1)
            await let_others_go_on(w)
            w.clock.advance(20)
            await reaches(w, watched, RunStatus.DONE)
            go_on.set()
        assert list(w.ocean.observed.pokes) == ["request"]


async def test_a_watched_run_is_left_to_a_ticker() -> None:
    async with stage(Script(Wait(for_ms=60_000), Done())) as w, ticker(w.ocean):
        run_id = await start(w)
        with w.ocean.watching(run_id):
            await reaches(w, run_id, RunStatus.WAITING)
            await let_others_go_on(w)
            w.clock.advance(60_000)
            await reaches(w, run_id, RunStatus.DONE)
        assert list(w.ocean.observed.pokes) == ["ticker"]


async def test_result_leaves_its_run_to_a_ticker() -> None:
    async with stage(Script(Continue(), Done(7))) as w, ticker(w.ocean):
        assert await w.ocean.result(await start(w)) == 7
        assert list(w.ocean.observed.pokes) == ["ticker"]


async def test_watching_an_unknown_run_an_ended_run_or_one_without_its_clog_does_no_harm() -> None:
    async with stage(Script(Done()), Clog("outside", external=True)) as w:
        done, outside = await start(w), await start(w, clog_id="outside")
        await w.drain()
        with w.ocean.watching("nobody"), w.ocean.watching(done), w.ocean.watching(outside):
            await until(lambda: w.ocean._watches.pokers == 1)
            await w.ocean.delete_run(outside)
            await until(lambda: w.ocean._watches.pokers == 0)


def _counted(w: World, *errors: Exception) -> Callable[[], int]:
    """Count the pokes of watchers and let the first ones fail with these errors."""
    pokes, left = 0, list(errors)

    class Counting(Coordinator):
        async def move(self, run_id: str, budget_ms: int, source: PokeSource, seen: int | None = None) -> bool:
            nonlocal pokes
            pokes += 1
            if left:
                raise left.pop()
            return await super().move(run_id, budget_ms, source, seen)

    w.ocean.coordinator = Counting(w.ocean._runtime, 0)
    return lambda: pokes
