"""A poke: what it claims, where it stops, what it returns, and what it gives back."""

import gc
from typing import Any

import anyio
import pytest

from ocean import Continue, Done, Ok, Outcome, RetryPolicy, RunNotFound, Tick, TickResult, UnknownClog, Wait
from ocean.kernel.call_context import CallContext
from ocean.kernel.metrics import Listener, TickSeen
from ocean.kernel.tick_run import TickWork
from ocean.state.records import Claim
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, let_others_go_on, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio

OF_A_TICK = Claim | CallContext | Tick | TickSeen | TickWork


async def test_a_poke_reports_what_it_did_and_when_the_next_is_needed() -> None:
    async with stage(Script(Wait(for_ms=700), Done(), Ok())) as w:
        first, second = await start(w), await start(w)
        await start_idle(w)
        advanced = await w.ocean.advance()
        results_seen = {(result.run_id, result.tick, result.outcome, result.status) for result in advanced.outcomes}
        assert results_seen == {(first, 1, "wait", "waiting"), (second, 1, "done", "done")}
        assert (advanced.advanced, advanced.due_now, advanced.next_wake_at) == (2, 0, w.clock.now() + 700)
        w.clock.advance(1_000)
        idle = await w.ocean.advance(budget_ms=0)
        assert (idle.advanced, idle.due_now, idle.oldest_due_age_ms) == (0, 1, 300)


async def test_nothing_is_claimed_after_the_budget() -> None:
    async def slow(tick: Tick) -> Outcome:
        w.clock.advance(60)
        return Continue()

    script = Script(slow)
    async with stage(script) as w:
        await start(w)
        advanced = await w.ocean.advance(budget_ms=100)
        assert (advanced.advanced, advanced.due_now) == (2, 1)
        assert (await w.ocean.advance(budget_ms=0)).advanced == 0


async def test_max_ticks_bounds_the_calls() -> None:
    script = Script(Continue())
    async with stage(script) as w:
        await start(w)
        advanced = await w.ocean.advance(max_ticks=3)
        assert (advanced.advanced, len(script.seen)) == (3, 3)
        assert (await w.ocean.advance(max_ticks=0)).advanced == 0


async def test_clog_ids_narrow_a_poke() -> None:
    async with stage(Script(Done()), Script(Done(), clog_id="d")) as w:
        one, other = await start(w), await start(w, clog_id="d")
        advanced = await w.ocean.advance(clog_ids=["d"])
        assert [result.run_id for result in advanced.outcomes] == [other]
        assert (await look(w, one)).status == "pending"
        with pytest.raises(UnknownClog):
            await w.ocean.advance(clog_ids=["nobody"])


async def test_a_poke_can_name_its_run() -> None:
    """L7: other runs, due for longer, are not touched."""
    script = Script(Continue(), Done())
    async with stage(script) as w:
        earlier = await start(w)
        w.clock.advance(1_000)
        mine = await start(w)
        advanced = await w.ocean.advance(run_id=mine)
        assert [result.run_id for result in advanced.outcomes] == [mine, mine]
        assert ((await look(w, mine)).status, (await look(w, earlier)).status) == ("done", "pending")
        with pytest.raises(RunNotFound):
            await w.ocean.advance(run_id="nobody")


async def test_a_poke_for_a_run_that_another_poke_holds_waits_for_it() -> None:
    began, go_on = anyio.Event(), anyio.Event()
    results: list[int] = []

    async def slow(tick: Tick) -> Outcome:
        began.set()
        await go_on.wait()
        return Continue()

    script = Script(slow, Done("second call"))
    async with stage(script) as w:
        run_id = await start(w)

        async def wait_for_it() -> None:
            results.append((await w.ocean.advance(run_id=run_id)).advanced)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: w.ocean.advance(max_ticks=1))
            await began.wait()
            tasks.start_soon(wait_for_it)
            await let_others_go_on(w)
            assert results == []
            go_on.set()
        assert results == [1]
        assert (await look(w, run_id)).output == "second call"


async def test_a_poke_for_a_run_whose_holder_died_takes_it_when_the_lock_lapses() -> None:
    script = Script(Done("saved"))
    async with stage(script) as w:
        run_id = await start(w)
        await die_holding(w, script)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: w.ocean.advance(run_id=run_id, budget_ms=2 * LOCK_MS))
            await let_others_go_on(w)
            w.clock.advance(LOCK_MS)
        assert (await look(w, run_id)).output == "saved"


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_concurrency_bounds_the_handlers_that_run_at_once(concurrency: int) -> None:
    at_work, most = 0, 0

    async def work(tick: Tick) -> Outcome:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await tick.read(run=True)
        at_work -= 1
        return Done()

    async with stage(Script(work)) as w:
        for _ in range(9):
            await start(w)
        assert (await w.ocean.advance(concurrency=concurrency)).advanced == 9
        assert most == concurrency


async def test_a_run_that_keeps_continuing_does_not_starve_others() -> None:
    """L6: each tick puts it at the back of the queue."""
    order: list[str] = []

    async def greedy(tick: Tick) -> Outcome:
        order.append(tick.run_id)
        return Continue()

    async with stage(Script(greedy)) as w:
        runs = [await start(w) for _ in range(3)]
        await w.ocean.advance(max_ticks=9, concurrency=1)
        assert [order.count(run_id) for run_id in runs] == [3, 3, 3]


async def test_urgent_runs_go_first_and_one_slot_in_eight_goes_to_the_longest_due() -> None:
    order: list[int] = []

    async def note(tick: Tick) -> Outcome:
        order.append(tick.run.priority)
        return Done()

    async with stage(Script(note)) as w:
        patient = await start(w, priority=9, run_id="z: last by name")
        w.clock.advance(1)
        for _ in range(20):
            await start(w, priority=0)
        await w.ocean.advance(max_ticks=8, concurrency=1)
        assert (await look(w, patient)).status == "done", "no run starves"
        assert order.count(0) == 7


async def test_a_run_of_an_unregistered_clog_waits_and_does_not_fail() -> None:
    """L9: a rolling deploy destroys nothing."""
    async with stage(Script(Done("later"))) as w:
        run_id = await start(w)
        older = await w.instance([Script(clog_id="old")])
        advanced = await older.advance()
        assert (advanced.advanced, advanced.due_now, advanced.unclaimable) == (0, 0, 1)
        assert advanced.next_wake_at is None
        assert (await look(w, run_id)).status == "pending"
        await w.drain()
        assert (await look(w, run_id)).output == "later"


async def _stop_at_work(script: Script, began: list[anyio.Event], times: int, **options: Any) -> tuple[str, ...]:
    """Poke with `hard_ms` this many times, each stopped in the middle; return status, attempt and events."""
    async with stage(script) as w:
        run_id = await start(w, "x", **options)
        for _ in range(times):
            began.append(anyio.Event())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: w.ocean.advance(hard_ms=50))
                await began[-1].wait()
                w.clock.advance(50)
        run = await look(w, run_id)
        given = [event.payload["attempt"] for event in await log(w, run_id, "tick.given_back")]
        code = (run.error or {}).get("code", "")
        return run.status, str(run.attempt), str(given), str(code), str(run.locked_by)


async def test_hard_ms_stops_the_handler_and_gives_its_run_back() -> None:
    began: list[anyio.Event] = []

    async def stuck(tick: Tick) -> Outcome:
        await tick.emit("half")
        began[-1].set()
        await anyio.Event().wait()
        return Ok()

    script = Script(stuck)
    assert await _stop_at_work(script, began, 1) == ("pending", "0", "[0]", "", "None")
    assert script.seen[0].inputs == ("x",)


async def test_two_give_backs_are_free_and_from_the_third_on_each_is_an_attempt() -> None:
    began: list[anyio.Event] = []

    async def stuck(tick: Tick) -> Outcome:
        began[-1].set()
        await anyio.Event().wait()
        return Ok()

    policy = RetryPolicy(max_attempts=2)
    assert await _stop_at_work(Script(stuck), began, 3, retry=policy) == ("pending", "1", "[0, 0, 1]", "", "None")
    ended = await _stop_at_work(Script(stuck), began, 4, retry=policy)
    assert ended == ("failed", "2", "[0, 0, 1]", "given_back", "None")


async def test_a_poke_that_was_cut_short_names_what_it_gave_back() -> None:
    began = anyio.Event()
    results: list[TickResult] = []

    async def stuck(tick: Tick) -> Outcome:
        began.set()
        await anyio.Event().wait()
        return Ok()

    async with stage(Script(stuck)) as w:
        run_id = await start(w)

        async def poke() -> None:
            results.extend((await w.ocean.advance(hard_ms=50)).outcomes)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke)
            await began.wait()
            w.clock.advance(50)
        assert [(result.run_id, result.outcome) for result in results] == [(run_id, "given_back")]


async def test_a_tick_given_back_is_called_again_with_the_same_inputs() -> None:
    began = anyio.Event()

    async def stuck_once(tick: Tick) -> Outcome:
        began.set()
        if tick.call_number == 1:
            await anyio.Event().wait()
        return Done(tick.input)

    script = Script(stuck_once)
    async with stage(script) as w:
        run_id = await start(w, "x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: w.ocean.advance(hard_ms=50))
            await began.wait()
            w.clock.advance(50)
        await w.drain()
        assert (await look(w, run_id)).output == "x"
        assert [(seen.number, seen.call) for seen in script.seen] == [(1, 1), (1, 2)]


async def test_a_finished_tick_leaves_no_reference_cycles() -> None:
    """A cycle would keep everything that the tick read and wrote in memory until the next collection."""
    async with stage(Script(Continue(), Done())) as w:
        w.ocean.observed.add_listener(Listener())
        gc.collect()
        gc.disable()
        try:
            before = {id(each) for each in gc.get_objects() if isinstance(each, OF_A_TICK)}
            for _ in range(3):
                await start(w)
            assert (await w.ocean.advance()).advanced == 4
            assert {id(each) for each in gc.get_objects() if isinstance(each, OF_A_TICK)} <= before
        finally:
            gc.enable()
