"""An orderly stop of an instance: every poke gives its runs back, and no run spends an attempt."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from ocean import Clog, Done, Ocean, Outcome, RunStatus, Tick
from ocean.testing import World
from ocean.ticker import ticker
from tests.lifecycle.acting import Script, let_others_go_on, log, look, stage, start

pytestmark = pytest.mark.anyio

PATIENCE_S = 30


class Endless(Script):
    """Its handler never ends by itself."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        super().__init__(self._stay)

    async def _stay(self, tick: Tick) -> Outcome:
        self.entered.set()
        await anyio.sleep_forever()
        raise AssertionError


async def by_advance(w: World, run_id: str) -> None:
    await w.ocean.advance()


async def by_advance_of_one_run(w: World, run_id: str) -> None:
    await w.ocean.advance(run_id=run_id)


async def by_request(w: World, run_id: str) -> None:
    await w.ocean.coordinator.poke_everything(500, "request")


async def by_result(w: World, run_id: str) -> None:
    await w.ocean.result(run_id, timeout_ms=1)


async def by_watcher(w: World, run_id: str) -> None:
    with w.ocean.watching(run_id):
        await anyio.sleep_forever()


async def by_ticker(w: World, run_id: str) -> None:
    async with ticker(w.ocean):
        await anyio.sleep_forever()


Poke = Callable[[World, str], Awaitable[None]]
POKES: list[Poke] = [by_advance, by_advance_of_one_run, by_request, by_result, by_watcher, by_ticker]


@pytest.mark.parametrize("poke", POKES)
async def test_a_stop_gives_back_the_run_of_any_poke(poke: Poke) -> None:
    clog = Endless()
    async with stage(clog) as w:
        run_id = await start(w)
        poking = asyncio.ensure_future(poke(w, run_id))
        with anyio.fail_after(PATIENCE_S):
            await clog.entered.wait()
            await w.ocean.stop()
        run = await look(w, run_id)
        assert (run.status, run.attempt, run.locked_by) == (RunStatus.PENDING, 0, None)
        poking.cancel()
        await asyncio.wait([poking])


@pytest.mark.parametrize("poke", POKES)
async def test_a_cancelled_poke_spends_no_attempt_however_often(poke: Poke) -> None:
    clog = Endless()
    async with stage(clog) as w:
        run_id = await start(w)
        for _ in range(4):
            clog.entered = anyio.Event()
            poking = asyncio.ensure_future(poke(w, run_id))
            with anyio.fail_after(PATIENCE_S):
                await clog.entered.wait()
                if poke is by_watcher:
                    await w.ocean._watches.close()
                poking.cancel()
                if poke is by_ticker:
                    # The first one begins its grace, which the second one ends.
                    await asyncio.wait([poking], timeout=0.05)
                    poking.cancel()
                await asyncio.wait([poking])
            run = await look(w, run_id)
            assert (run.status, run.attempt, run.locked_by) == (RunStatus.PENDING, 0, None)


async def test_the_limit_of_a_caller_still_counts_from_the_third_time_on() -> None:
    clog = Endless()
    async with stage(clog) as w:
        run_id = await start(w)
        for attempts in (0, 0, 1):
            clog.entered = anyio.Event()
            poking = asyncio.ensure_future(w.ocean.advance(hard_ms=1_000))
            with anyio.fail_after(PATIENCE_S):
                await clog.entered.wait()
                w.clock.advance(1_000)
                await poking
            assert (await look(w, run_id)).attempt == attempts


async def test_a_stop_waits_for_handlers_and_claims_nothing_more() -> None:
    entered, release = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        entered.set()
        await release.wait()
        return Done("finished")

    async with stage(Script(slow, clog_id="slow"), Script(Done(), clog_id="other")) as w:
        first = await start(w, clog_id="slow")
        poking = asyncio.ensure_future(w.ocean.advance())
        with anyio.fail_after(PATIENCE_S):
            await entered.wait()
            stopping = asyncio.ensure_future(w.ocean.stop(8_000))
            while not w.ocean.shutdown.is_begun:
                await anyio.lowlevel.checkpoint()
            other = await start(w, clog_id="other")
            release.set()
            await stopping
            assert [tick.run_id for tick in (await poking).outcomes] == [first]
            assert (await w.ocean.advance()).outcomes == ()
        assert (await look(w, first)).output == "finished"
        assert (await look(w, other)).status is RunStatus.PENDING


async def test_what_outlasts_the_grace_is_given_back() -> None:
    clog = Endless()
    async with stage(clog) as w:
        run_id = await start(w)
        poking = asyncio.ensure_future(w.ocean.advance())
        await clog.entered.wait()
        stopping = asyncio.ensure_future(w.ocean.stop(8_000))
        await let_others_go_on(w)
        w.clock.advance(7_999)
        await let_others_go_on(w)
        assert (await look(w, run_id)).status is RunStatus.ACTIVE
        w.clock.advance(1)
        with anyio.fail_after(PATIENCE_S):
            await stopping
            assert [result.outcome for result in (await poking).outcomes] == ["given_back"]
        assert (await look(w, run_id)).status is RunStatus.PENDING


async def test_a_hurried_stop_gives_back_at_once() -> None:
    clog = Endless()
    async with stage(clog) as w:
        run_id = await start(w)
        poking = asyncio.ensure_future(w.ocean.advance())
        with anyio.fail_after(PATIENCE_S):
            await clog.entered.wait()
            assert [(tick.clog_id, tick.run_id, tick.tick) for tick in w.ocean.shutdown.ticks()] == [("c", run_id, 1)]
            stopping = asyncio.ensure_future(w.ocean.stop(8_000))
            w.ocean.shutdown.hurry()
            await stopping
            await poking
        assert (await look(w, run_id)).attempt == 0


async def test_a_claim_in_flight_when_the_stop_begins_is_given_back_without_a_call() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        run_id = await start(w)
        poking = asyncio.ensure_future(w.ocean.advance())
        with anyio.fail_after(PATIENCE_S):
            while not w.ocean.shutdown._pokes:
                await anyio.lowlevel.checkpoint()
            await w.ocean.stop()
            await poking
        run = await look(w, run_id)
        assert (run.status, run.attempt, clog.seen) == (RunStatus.PENDING, 0, [])


def shielded(entered: anyio.Event, release: threading.Event) -> Clog:
    async def stay(tick: Tick) -> Outcome:
        entered.set()
        with anyio.CancelScope(shield=True):
            while not release.is_set():
                await anyio.lowlevel.checkpoint()
        await tick.emit("late")
        return Done("too late")

    return Script(stay)


def in_thread(entered: anyio.Event, release: threading.Event) -> Clog:
    clog = Clog("c")

    @clog.on_advance
    def stay(tick: Tick) -> Outcome:
        anyio.from_thread.run_sync(entered.set)
        assert release.wait(PATIENCE_S)
        return Done("too late")

    return clog


@pytest.mark.parametrize("make", [shielded, in_thread])
async def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_a_stop_and_changes_nothing_later(
    make: Callable[[anyio.Event, threading.Event], Clog], caplog: pytest.LogCaptureFixture
) -> None:
    entered, release = anyio.Event(), threading.Event()
    async with stage(make(entered, release)) as w:
        run_id = await start(w)
        poking = asyncio.ensure_future(w.ocean.advance())
        with anyio.fail_after(PATIENCE_S):
            await entered.wait()
            await w.ocean.stop()
            assert [result.outcome for result in (await poking).outcomes] == ["given_back"]
            assert w.ocean.still_executing == 1
            release.set()
            while w.ocean.still_executing:
                await anyio.lowlevel.checkpoint()
        run = await look(w, run_id)
        assert (run.status, run.attempt, run.output) == (RunStatus.PENDING, 0, None)
        assert await log(w, run_id, "late") == []
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


async def test_closing_gives_back_what_other_tasks_of_the_program_are_advancing(tmp_path: Path) -> None:
    url, clog = f"sqlite:///{tmp_path}/ocean.db", Endless()
    async with Ocean.open(url, clogs=[clog]) as ocean:
        run_id = (await ocean.create_run(session_id="s", clog_id="c", input={})).run_id
        poking = asyncio.ensure_future(ocean.advance())
        with anyio.fail_after(PATIENCE_S):
            await clog.entered.wait()
    with anyio.fail_after(PATIENCE_S):
        await asyncio.wait([poking])
    poking.exception()
    async with Ocean.open(url) as ocean:
        run = await ocean.get_run(run_id)
        assert run is not None
        assert (run.status, run.attempt, run.locked_by) == (RunStatus.PENDING, 0, None)
