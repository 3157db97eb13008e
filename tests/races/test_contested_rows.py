"""Many writers of one row: no update is lost, and a slow tick does not conflict for ever."""

from typing import Any

import anyio
import pytest

from ocean import Clog, Conflict, Done, Ok, RunStatus, Tick
from ocean.testing import world
from tests.invariants import check
from tests.races.arranging import units_written, until

pytestmark = pytest.mark.anyio

RUNS = 40


class Barrier:
    """Release the first `size` arrivals together: the worst case of a race."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._all_here = anyio.Event()

    async def wait(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._all_here.set()
        await self._all_here.wait()


def an_adder(*, by_function: bool) -> tuple[Clog, list[int]]:
    clog, calls, barrier = Clog("adder"), [0], Barrier(RUNS)

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls[0] += 1
        rows = await tick.read(session=True)
        if tick.call_number == 1:
            await barrier.wait()
        old = (rows.session or {"n": 0})["n"]
        await tick.write(session=_add_one if by_function else {"n": old + 1})
        return Done()

    @clog.method
    async def total(tick: Tick, payload: Any) -> Any:
        return (await tick.read(session=True)).session

    return clog, calls


def _add_one(old: Any) -> Any:
    return {"n": (old or {"n": 0})["n"] + 1}


@pytest.mark.parametrize(("by_function", "most_calls"), [(False, 3 * RUNS), (True, RUNS)])
async def test_forty_runs_add_to_one_session_row(by_function: bool, most_calls: int) -> None:
    clog, calls = an_adder(by_function=by_function)
    async with world([clog]) as w:
        for _ in range(RUNS):
            await w.ocean.create_run(session_id="s", clog_id="adder", input=1)
        await w.ocean.advance(concurrency=RUNS)
        assert await w.ocean.call_clog(clog_id="adder", session_id="s", method="total") == {"n": RUNS}
        assert calls[0] <= most_calls
        runs = (await w.ocean.list_runs(clog_id="adder")).runs
        assert {(run.status, run.attempt) for run in runs} == {(RunStatus.DONE, 0)}
        await check(w)


@pytest.mark.sqlite
async def test_a_slow_tick_gets_its_turn_and_quick_writers_wait_behind_it() -> None:
    """After two conflicts the third call is undisturbed: a direct call waits until it has committed."""
    clog = Clog("slow")
    calls: list[int] = []
    reached, go_on = [anyio.Event() for _ in range(3)], [anyio.Event() for _ in range(3)]

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        seen = (await tick.read(session=True)).session
        calls.append(tick.call_number)
        reached[tick.call_number - 1].set()
        await go_on[tick.call_number - 1].wait()
        await tick.write(session=[*(seen or []), "slow"])
        return Done()

    @clog.method
    async def quick(tick: Tick, payload: Any) -> Any:
        seen = (await tick.read(session=True)).session
        await tick.write(session=[*(seen or []), payload])

    @clog.method
    async def show(tick: Tick, payload: Any) -> Any:
        return (await tick.read(session=True)).session

    with anyio.fail_after(20):
        async with world([clog]) as w, anyio.create_task_group() as tasks:
            run = await w.ocean.create_run(session_id="s", clog_id="slow", input=1)

            async def write_quickly(name: str) -> None:
                await w.ocean.call_clog(clog_id="slow", session_id="s", method="quick", payload=name)

            tasks.start_soon(w.drain)
            for number in range(2):
                await reached[number].wait()
                await write_quickly(f"quick {number}")
                go_on[number].set()
            await reached[2].wait()
            async with anyio.create_task_group() as behind:
                before = units_written(w)
                behind.start_soon(write_quickly, "quick 2")
                await until(lambda: units_written(w) > before)
                go_on[2].set()
            await w.ocean.result(run.run_id)
            assert calls == [1, 2, 3]
            written = await w.ocean.call_clog(clog_id="slow", session_id="s", method="show")
            assert written == ["quick 0", "quick 1", "slow", "quick 2"]
            [tick] = await w.ocean.list_ticks(run.run_id)
            assert (tick.calls, tick.conflicts) == (3, 2)
            restarts = await w.ocean.read_events(run.run_id, types=["tick.restarted"])
            assert [(event.call, event.payload["because"]) for event in restarts] == [(2, "conflict"), (3, "conflict")]
            await check(w)


async def test_a_turn_ends_with_its_lock() -> None:
    """The holder of a turn dies: writers behind it continue once its lock has expired."""
    clog = Clog("slow")
    has_read, may_write = [[anyio.Event(), anyio.Event(), anyio.Event()] for _ in range(2)]

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        await tick.read(session=True)
        has_read[tick.call_number - 1].set()
        await may_write[tick.call_number - 1].wait()
        await tick.write(session="slow")
        return Done()

    @clog.method
    async def quick(tick: Tick, payload: Any) -> Any:
        await tick.read(session=True)
        await tick.write(session=payload)
        return payload

    async with world([clog]) as w, anyio.create_task_group() as tasks:
        await w.ocean.create_run(session_id="s", clog_id="slow", input=1)
        other = await w.instance([clog])
        tasks.start_soon(w.drain)
        for number in range(2):
            await has_read[number].wait()
            await other.call_clog(clog_id="slow", session_id="s", method="quick", payload=number)
            may_write[number].set()
        await has_read[2].wait()
        w.clock.jump(30_001)
        assert await other.call_clog(clog_id="slow", session_id="s", method="quick", payload="after") == "after"
        tasks.cancel_scope.cancel()


async def test_a_direct_call_on_a_run_at_work_makes_the_tick_run_again() -> None:
    """D10, R1: both write the run row; neither write is lost."""
    clog = Clog("shared")
    reached, go_on = anyio.Event(), anyio.Event()

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        seen = (await tick.read(run=True)).run or []
        if tick.call_number == 1:
            reached.set()
            await go_on.wait()
        await tick.write(run=[*seen, "tick"])
        return Ok()

    @clog.method
    async def note(tick: Tick, payload: Any) -> Any:
        seen = (await tick.read(run=True)).run or []
        await tick.write(run=[*seen, payload])
        return [*seen, payload]

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="shared", input=1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await reached.wait()
            await w.ocean.call_clog(run_id=run.run_id, method="note", payload="call")
            go_on.set()
        assert await w.ocean.call_clog(run_id=run.run_id, method="note", payload="end") == ["call", "tick", "end"]
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.attempt, info.status) == (0, RunStatus.IDLE)
        await check(w)


async def test_a_direct_call_that_only_reads_is_made_again_if_a_guarded_row_moved() -> None:
    clog, seen = Clog("guarded"), list[Any]()

    @clog.method
    async def look(tick: Tick, payload: Any) -> Any:
        value = (await tick.read(session=True, guard=True)).session
        seen.append(value)
        if len(seen) == 1:
            await other.call_clog(clog_id="guarded", session_id="s", method="write", payload="new")
        return value

    @clog.method
    async def write(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session=payload)

    async with world([clog]) as w:
        other = await w.instance([clog])
        assert await w.ocean.call_clog(clog_id="guarded", session_id="s", method="look") == "new"
        assert seen == [None, "new"]


async def test_a_direct_call_that_always_loses_raises_conflict_and_writes_nothing() -> None:
    clog = Clog("shared")
    rival_writes = 0

    @clog.method
    async def slow(tick: Tick, payload: Any) -> Any:
        nonlocal rival_writes
        await tick.read(session=True)
        rival_writes += 1
        await other.call_clog(clog_id="shared", session_id="s", method="quick", payload=rival_writes)
        await tick.write(session="slow")
        await tick.emit("slow")

    @clog.method
    async def quick(tick: Tick, payload: Any) -> Any:
        await tick.read(session=True)
        await tick.write(session=payload)

    @clog.method
    async def show(tick: Tick, payload: Any) -> Any:
        return (await tick.read(session=True)).session

    async with world([clog]) as w:
        other = await w.instance([clog])
        with pytest.raises(Conflict, match=r"shared\.slow had 5 conflicts"):
            await w.ocean.call_clog(clog_id="shared", session_id="s", method="slow")
        assert await w.ocean.call_clog(clog_id="shared", session_id="s", method="show") == rival_writes
        assert await w.ocean.read_events(types=["slow"]) == []
