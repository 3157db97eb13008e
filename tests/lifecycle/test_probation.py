"""After a crash the runs that were at work together are called apart from all others, in ever smaller groups."""

import anyio
import anyio.lowlevel
import pytest

from ocean import Clog, Done, Outcome, Retry, Tick
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk
from ocean.testing import World, world
from tests.invariants import check
from tests.lifecycle.acting import LOCK_MS, log, look, start

pytestmark = pytest.mark.anyio


class Crowd(Clog):
    """A clog that records which runs are at work at the same time. Handlers take a while."""

    def __init__(self) -> None:
        super().__init__("c")
        self.at_work: set[str] = set()
        self.together: list[frozenset[str]] = []

        async def work(tick: Tick) -> Outcome:
            self.at_work.add(tick.run_id)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            self.together.append(frozenset(self.at_work))
            self.at_work.remove(tick.run_id)
            return Retry("no", after_ms=0) if tick.input == "retry" and not tick.attempt else Done()

        self.on_advance(work)


async def crash(w: World, *run_ids: str) -> None:
    """Let a process crash that works on these runs."""
    for run_id in run_ids:
        await start(w, run_id=run_id)
    terms = {"c": ClaimableClog("c", LOCK_MS, "1", False)}
    claims = await w.store.claim_due(ClaimAsk(terms, "i-dead", len(run_ids), 0, None))
    assert sorted(claim.run.run_id for claim in claims) == sorted(run_ids)
    w.clock.advance(LOCK_MS)


async def test_suspects_are_called_in_groups_of_half_and_others_wait() -> None:
    crowd = Crowd()
    async with world(clogs=[crowd], lock_ms=LOCK_MS) as w:
        suspects = [f"suspect-{number}" for number in range(8)]
        await crash(w, *suspects)
        others = [await start(w, run_id=f"other-{number}") for number in range(3)]
        with anyio.fail_after(20):
            await w.drain()
        for group in crowd.together:
            assert group <= set(suspects) or group <= set(others)
            assert len(group & set(suspects)) <= 4
        assert max(len(group & set(suspects)) for group in crowd.together) == 4
        assert max(len(group & set(others)) for group in crowd.together) > 1
        assert {(await look(w, run_id)).status for run_id in suspects + others} == {"done"}
        assert {(await look(w, run_id)).attempt for run_id in suspects} == {0}
        await check(w)


async def test_a_suspect_waits_for_the_calls_in_progress() -> None:
    began, go_on, order = anyio.Event(), anyio.Event(), []
    crowd = Clog("c")

    @crowd.on_advance
    async def work(tick: Tick) -> Outcome:
        if tick.run_id == "busy":
            began.set()
            await go_on.wait()
        order.append(tick.run_id)
        return Done()

    async with world(clogs=[crowd], lock_ms=LOCK_MS, moves_time=False) as w:
        await crash(w, "suspect", "second")
        await w.ocean.create_run(session_id="s", clog_id="c", run_id="busy", input=None, priority=0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: w.ocean.advance(run_id="busy"))
            await began.wait()
            tasks.start_soon(lambda: w.ocean.advance(run_id="suspect"))
            with anyio.fail_after(20):
                while (await look(w, "suspect")).locked_by != w.ocean.instance_id:
                    await anyio.lowlevel.checkpoint()
            await w.ocean.get_run("suspect")
            assert order == []
            go_on.set()
        assert order == ["busy", "suspect"]
        await check(w)


async def test_other_runs_are_left_to_other_processes_meanwhile() -> None:
    began, go_on = anyio.Event(), anyio.Event()
    crowd = Clog("c")

    @crowd.on_advance
    async def work(tick: Tick) -> Outcome:
        if tick.run_id.startswith("suspect"):
            began.set()
            await go_on.wait()
        return Done()

    async with world(clogs=[crowd], lock_ms=LOCK_MS, moves_time=False) as w:
        await crash(w, "suspect-1", "suspect-2")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            with anyio.fail_after(20):
                await began.wait()
                await start(w, run_id="other")
                assert (await w.ocean.advance()).advanced == 0
                assert (await look(w, "other")).locked_by is None
                elsewhere = await w.instance([crowd])
                assert (await elsewhere.advance()).advanced == 1
            go_on.set()
        assert {(await look(w, run_id)).status for run_id in ("suspect-1", "suspect-2", "other")} == {"done"}
        await check(w)


async def test_a_stopped_poke_gives_back_the_suspects_that_wait() -> None:
    began = anyio.Event()
    crowd = Clog("c")

    @crowd.on_advance
    async def work(tick: Tick) -> Outcome:
        began.set()
        await anyio.sleep_forever()
        return Done()

    async with world(clogs=[crowd], lock_ms=LOCK_MS, moves_time=False) as w:
        await crash(w, "one", "two", "three")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            tasks.cancel_scope.cancel()
        for run_id in ("one", "two", "three"):
            run = await look(w, run_id)
            assert (run.status, run.attempt, run.locked_by) == ("pending", 0, None)
        await check(w)


async def test_a_suspect_that_fails_in_order_is_cleared() -> None:
    crowd = Crowd()
    async with world(clogs=[crowd], lock_ms=LOCK_MS) as w:
        await start(w, "retry", run_id="mate")
        terms = {"c": ClaimableClog("c", LOCK_MS, "1", False)}
        await w.store.claim_due(ClaimAsk(terms, "i-dead", 1, 0, None))
        await crash(w, "suspect")
        await w.drain()
        assert (await look(w, "mate")).status == "done"
        restarted = [event.payload for event in await log(w, "mate", "tick.restarted")]
        assert [each["because"] for each in restarted] == ["crash", "retry"]
        assert restarted[0]["company"] == 2
        await check(w)
