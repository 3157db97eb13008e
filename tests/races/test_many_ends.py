"""More due ends than one batch executes."""

import anyio
import pytest

from ocean import Clog, Done, Ok, RunStatus, Tick
from ocean.testing import world
from tests.invariants import check

pytestmark = pytest.mark.anyio


async def test_more_overdue_runs_than_a_batch_all_end_without_a_call() -> None:
    clog, calls = Clog("late"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        calls.append(tick.run_id)
        return Ok()

    async with world([clog]) as w:
        for _ in range(150):
            await w.ocean.create_run(session_id="s", clog_id="late", deadline_at=w.clock.now() + 1)
        w.clock.advance(10)
        poke = await w.ocean.advance()
        assert (poke.advanced, poke.due_now, calls) == (0, 0, [])
        assert (await w.ocean.count_runs(status=RunStatus.FAILED)).count == 150
        await check(w)


async def test_an_overdue_run_with_a_live_lock_is_ended_not_taken_over() -> None:
    """The running handler loses its lock; no second one is called concurrently."""
    clog, calls, all_at_work = Clog("late"), list[int](), anyio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls.append(tick.call_number)
        if len(calls) == 120:
            all_at_work.set()
        await anyio.sleep_forever()
        return Done()

    async with world([clog]) as w:
        other = await w.instance([clog])
        for _ in range(120):
            await w.ocean.create_run(session_id="s", clog_id="late", input=1, deadline_at=w.clock.now() + 1_000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: w.ocean.advance(concurrency=120))
            await all_at_work.wait()
            w.clock.jump(1_000)
            assert (await other.advance()).outcomes == ()
            assert (await w.ocean.count_runs(status=RunStatus.FAILED)).count == 120
            w.clock.advance(10_000)
        assert calls == [1] * 120
        await check(w)


async def test_a_child_that_ends_with_its_parent_in_the_middle_of_a_claim_is_not_claimed() -> None:
    """The parent is the hundred-and-first overdue run, so it ends among the claims; its child is next on the list."""
    clog, inputs = Clog("late"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        inputs.append(tick.input)
        if tick.input == "parent":
            await tick.create_run(clog_id="late", run_id="child", on_parent_end="cancel")
        return Ok()

    async with world([clog]) as w:
        ocean, now = w.ocean, w.clock.now()
        await ocean.create_run(
            session_id="s", clog_id="late", run_id="parent", input="parent", priority=0, deadline_at=now + 1_000
        )
        await w.drain()
        for _ in range(100):
            await ocean.create_run(session_id="s", clog_id="late", deadline_at=now + 500)
        w.clock.advance(2_000)
        await ocean.signal("child", "child")
        await w.drain()
        assert inputs == ["parent"]
        assert (await ocean.count_runs(status=RunStatus.FAILED)).count == 102
        await check(w)
