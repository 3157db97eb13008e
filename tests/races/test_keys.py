"""Races of concurrency keys: the commit that frees a slot, the claim that takes it, and others between them."""

from functools import partial

import anyio
import anyio.lowlevel
import pytest

from ocean import Clog, Done, Key, Ocean, Ok, Outcome, RunStatus, Tick
from ocean.testing import World
from tests.invariants import check
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, look, stage, start
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


class Gate(Clog):
    """A clog whose calls wait until they are released; `inside` are the runs that are active now."""

    def __init__(self, clog_id: str = "c") -> None:
        super().__init__(clog_id)
        self.inside: list[str] = []
        self.calls: list[str] = []
        self._gates: dict[str, anyio.Event] = {}

        async def advance(tick: Tick) -> Outcome:
            self.inside.append(tick.run_id)
            self.calls.append(tick.run_id)
            self._gates[tick.run_id] = anyio.Event()
            try:
                await self._gates[tick.run_id].wait()
            finally:
                self.inside.remove(tick.run_id)
            return Done()

        self.on_advance(advance)

    async def entered(self, run_id: str) -> None:
        await until(lambda: run_id in self.inside)

    async def let_go(self, run_id: str) -> None:
        self._gates[run_id].set()
        await until(lambda: run_id not in self.inside)


async def _ended(w: World, run_id: str) -> None:
    with anyio.fail_after(20):
        while not (await look(w, run_id)).is_ended:
            await anyio.lowlevel.checkpoint()


async def test_two_instances_never_work_under_one_key_at_once(url: str) -> None:
    at_work = most = 0

    async def act(tick: Tick) -> Outcome:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await w.ocean.get_run(tick.run_id)
        at_work -= 1
        return Done()

    clog = Script(act)
    async with stage(clog, url=url) as w:
        other = await w.instance([clog])
        runs = [await start(w, concurrency_keys=["k"]) for _ in range(40)]
        while (await w.ocean.count_runs(status="pending")).count:
            async with anyio.create_task_group() as tasks:
                for ocean in (w.ocean, other, w.ocean, other):
                    tasks.start_soon(partial(ocean.advance, concurrency=5))
        assert most == 1
        assert sorted(await _done(w)) == sorted(runs)
        assert len(clog.seen) == 40


async def _done(w: World) -> list[str]:
    return [run.run_id for run in (await w.ocean.list_runs(status="done", limit=1_000)).runs]


async def test_a_poke_continues_with_the_run_its_own_commit_woke() -> None:
    """Without another poke, a run parked while the slot was taken is called by the poke that frees it."""
    clog = Gate()
    async with stage(clog) as w, anyio.create_task_group() as tasks:
        first = await start(w, concurrency_keys=["k"])
        tasks.start_soon(w.ocean.advance)
        await clog.entered(first)
        second = await start(w, concurrency_keys=["k"])
        assert (await look(w, second)).parked_on == "k"
        await clog.let_go(first)
        await clog.entered(second)
        await clog.let_go(second)


async def test_a_slot_freed_here_is_taken_by_another_instance_that_claims_first() -> None:
    here, there = Gate("here"), Gate("there")
    async with stage(here) as w, anyio.create_task_group() as tasks:
        other = await w.instance([there])
        first = await start(w, clog_id="here", concurrency_keys=["k"])
        tasks.start_soon(partial(w.ocean.advance, max_ticks=1))
        await here.entered(first)
        mine = await start(w, clog_id="here", concurrency_keys=["k"])
        theirs = await start(w, clog_id="there", priority=9, concurrency_keys=["k"])
        await here.let_go(first)
        await _ended(w, first)
        assert [(await look(w, run)).parked_on for run in (mine, theirs)] == [None, None], "one of each clog is woken"
        tasks.start_soon(partial(other.advance, max_ticks=1))
        await there.entered(theirs)
        assert (await w.ocean.advance()).outcomes == ()
        assert (await look(w, mine)).parked_on == "k", "woken in vain, it is in line again"
        await there.let_go(theirs)
        await _ended(w, theirs)
        tasks.start_soon(w.ocean.advance)
        await here.entered(mine)
        await here.let_go(mine)


@pytest.mark.parametrize("stop", ["cancel_run", "delete_run", "pause_run"])
async def test_a_run_stopped_between_wake_up_and_claim_passes_the_slot_on(stop: str) -> None:
    clog = Gate()
    async with stage(clog) as w, anyio.create_task_group() as tasks:
        first = await start(w, concurrency_keys=["k"])
        tasks.start_soon(partial(w.ocean.advance, max_ticks=1))
        await clog.entered(first)
        woken, behind = [await start(w, concurrency_keys=["k"]) for _ in range(2)]
        await clog.let_go(first)
        await _ended(w, first)
        assert [(await look(w, run)).parked_on for run in (woken, behind)] == [None, "k"]
        await getattr(w.ocean, stop)(woken)
        assert (await look(w, behind)).parked_on is None
        tasks.start_soon(w.ocean.advance)
        await clog.entered(behind)
        if stop == "pause_run":
            await w.ocean.resume_run(woken)
            assert (await look(w, woken)).parked_on == "k"
            await w.ocean.cancel_run(woken)
        await clog.let_go(behind)
    assert clog.calls == [first, behind]


async def test_a_pause_of_the_clog_between_waking_and_claim_leaves_the_slot_to_others() -> None:
    paused, other = Gate("paused"), Gate("other")
    async with stage(paused, other) as w, anyio.create_task_group() as tasks:
        first = await start(w, clog_id="paused", concurrency_keys=["k"])
        tasks.start_soon(partial(w.ocean.advance, max_ticks=1))
        await paused.entered(first)
        woken = await start(w, clog_id="paused", concurrency_keys=["k"])
        late = await start(w, clog_id="other", concurrency_keys=["k"])
        await w.ocean.pause_clog("paused")
        await paused.let_go(first)
        await _ended(w, first)
        tasks.start_soon(w.ocean.advance)
        await other.entered(late)
        await w.ocean.resume_clog("paused")
        await other.let_go(late)
        await paused.entered(woken)
        await paused.let_go(woken)


async def test_a_holder_that_is_cancelled_at_work_frees_the_slot_before_it_has_noticed() -> None:
    clog = Gate()
    async with stage(clog) as w, anyio.create_task_group() as tasks:
        other = await w.instance([clog])
        first = await start(w, concurrency_keys=[Key("k", "run")])
        tasks.start_soon(partial(w.ocean.advance, max_ticks=1))
        await clog.entered(first)
        second = await start(w, concurrency_keys=["k"])
        await w.ocean.cancel_run(first)
        tasks.start_soon(other.advance)
        await clog.entered(second)
        assert (await w.ocean.get_key("k")).in_use == 1
        await clog.let_go(first)
        assert (await w.ocean.get_key("k")).in_use == 1, "its late commit frees no other run's slot"
        await clog.let_go(second)


async def test_a_holder_that_was_overtaken_frees_nothing() -> None:
    clog = Script(Ok())
    async with stage(clog) as w:
        run = await start(w, concurrency_keys=["k"])
        old = await die_holding(w, clog)
        w.clock.jump(LOCK_MS)
        new = await die_holding(w, clog)
        behind = await start(w, concurrency_keys=["k"])
        assert await w.store.give_back(old.lock, old.tick) is None
        assert [(await look(w, each)).status for each in (run, behind)] == [RunStatus.ACTIVE, RunStatus.PENDING]
        assert (await look(w, behind)).parked_on == "k"
        await w.store.give_back(new.lock, new.tick)
        assert (await look(w, behind)).parked_on is None


async def test_a_clock_that_is_set_back_loses_no_woken_or_parked_run() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        first = await start(w, concurrency_keys=["k"])
        await die_holding(w, clog)
        woken, parked = [await start(w, concurrency_keys=["k"]) for _ in range(2)]
        await w.ocean.cancel_run(first)
        w.clock.jump(-1_000)
        late = await start(w, concurrency_keys=["k"])
        await w.ocean.signal(woken, "touched at an earlier time")
        await check(w)
        await w.drain()
        assert (await look(w, late)).status is RunStatus.DONE
        w.clock.jump(1_000)
        await w.drain()
        assert {(await look(w, run)).status for run in (woken, parked)} == {RunStatus.DONE}


async def test_a_limit_lowered_between_wake_up_and_claim_parks_the_woken_run() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        other: Ocean = await w.instance([clog])
        first = await start(w, concurrency_keys=["k"])
        await die_holding(w, clog)
        woken = await start(w, concurrency_keys=["k"])
        await w.ocean.cancel_run(first)
        await other.set_limit("k", 0)
        assert await w.drain() == []
        assert (await look(w, woken)).parked_on == "k"
        await other.set_limit("k", 1)
        assert [result.run_id for result in await w.drain()] == [woken]
