"""Named timers: set by a clog for its own run, kept over other signals, fired once and never early."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import Done, Ok, Outcome, Tick, Wait
from tests.lifecycle.acting import Act, Script, log, look, stage, start, types

pytestmark = pytest.mark.anyio


def arm(name: str, after_ms: int, input: Any = None) -> Act:
    async def act(tick: Tick) -> Outcome:
        await tick.set_timer(name, after_ms=after_ms, input=input)
        return Ok()

    return act


def disarm(name: str) -> Callable[[Tick], Awaitable[Outcome]]:
    async def act(tick: Tick) -> Outcome:
        await tick.cancel_timer(name)
        return Ok()

    return act


async def test_a_timer_survives_other_signals_and_needs_no_re_arming() -> None:
    """S6: three signals arrive before, and the timer still fires at its time."""
    script = Script(arm("remind", 1_000, "ring"), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        for n in range(3):
            w.clock.advance(300)
            await w.ocean.signal(run_id, n)
            await w.drain()
        assert (await look(w, run_id)).wake_at == w.clock.now() + 100
        w.clock.advance(99)
        assert await w.drain() == []
        w.clock.advance(1)
        await w.drain()
        assert [(seen.reason, seen.timer, seen.inputs) for seen in script.seen[-2:]] == [
            ("signal", None, (2,)),
            ("timer", "remind", ("ring",)),
        ]
        assert (await look(w, run_id)).status == "idle"


async def test_setting_a_timer_again_replaces_the_unfired_one() -> None:
    script = Script(arm("t", 100, "old"), arm("t", 500, "new"), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain()
        run = await look(w, run_id)
        assert (run.pending_count, run.wake_at) == (1, w.clock.now() + 500)
        w.clock.advance(1_000)
        await w.drain()
        assert script.bodies == [None, None, "new"]


async def test_setting_a_timer_twice_in_one_tick_keeps_the_second() -> None:
    async def twice(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=10, input=1)
        await tick.set_timer("t", at=tick.now + 20, input=2)
        return Ok()

    script = Script(twice, Ok())
    async with stage(script) as w:
        await start(w)
        await w.drain()
        w.clock.advance(100)
        await w.drain()
        assert script.bodies == [None, 2]


async def test_two_timers_fire_each_at_its_time() -> None:
    async def two(tick: Tick) -> Outcome:
        await tick.set_timer("late", after_ms=200)
        await tick.set_timer("early", after_ms=100)
        return Ok()

    script = Script(two, Ok())
    async with stage(script) as w:
        await start(w)
        await w.drain()
        for _ in range(2):
            w.clock.advance(100)
            await w.drain()
        assert [seen.timer for seen in script.seen] == [None, "early", "late"]


async def test_a_cancelled_timer_never_fires_and_the_run_is_idle() -> None:
    script = Script(arm("t", 100), disarm("t"))
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.wake_at, run.pending_count) == ("idle", None, 0)
        assert (await log(w, run_id, "timer.cancelled"))[0].payload == {"timer": "t"}
        w.clock.advance(1_000)
        assert await w.drain() == []


async def test_cancelling_a_timer_that_is_not_set_changes_nothing() -> None:
    async with stage(Script(disarm("none"))) as w:
        run_id = await start(w)
        await w.drain()
        assert await types(w, run_id) == ["run.created", "tick.committed"]


async def test_a_timer_can_be_set_again_by_the_tick_it_woke() -> None:
    """A tick whose input is the fired timer sets it again: a periodic timer."""

    async def beat(tick: Tick) -> Outcome:
        await tick.set_timer("beat", after_ms=10, input=(tick.input or 0) + 1)
        return Ok()

    script = Script(beat)
    async with stage(script) as w:
        await start(w)
        await w.drain()
        for _ in range(3):
            w.clock.advance(10)
            await w.drain()
        assert script.bodies == [None, 1, 2, 3]


async def test_a_timer_in_the_past_fires_at_once() -> None:
    async def late(tick: Tick) -> Outcome:
        await tick.set_timer("t", at=tick.now - 5)
        return Wait(for_ms=10_000) if tick.number == 1 else Ok()

    script = Script(late, Ok())
    async with stage(script) as w:
        await start(w)
        await w.drain()
        assert [seen.reason for seen in script.seen] == ["created", "timer"]


async def test_timers_are_deleted_at_the_end_of_their_run() -> None:
    async def last(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=10)
        return Done()

    script = Script(last)
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.pending_count, run.due_at) == ("done", 0, None)
        assert await log(w, run_id, "signal.undelivered") == []
        assert (await w.ocean.advance()).next_wake_at is None


async def test_a_timer_and_a_signal_due_together_come_in_order_of_availability() -> None:
    script = Script(arm("t", 100, "timer"), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id, "delayed", deliver_at=w.clock.now() + 50)
        w.clock.advance(200)
        await w.ocean.signal(run_id, "fresh")
        await w.drain()
        assert script.bodies == [None, "delayed", "timer", "fresh"]


async def test_the_wake_time_of_many_runs_is_the_next_poke() -> None:
    async with stage(Script(arm("t", 500), arm("t", 300), arm("t", 400))) as w:
        for _ in range(3):
            await start(w)
        advanced = await w.ocean.advance()
        assert (advanced.due_now, advanced.next_wake_at) == (0, w.clock.now() + 300)


@pytest.mark.parametrize("arguments", [{}, {"at": 1, "after_ms": 1}, {"after_ms": -1}, {"at": 1.5}, {"at": True}])
async def test_a_timer_needs_exactly_one_time(arguments: dict[str, Any]) -> None:
    async def odd(tick: Tick) -> Outcome:
        await tick.set_timer("t", **arguments)
        return Ok()

    async with stage(Script(odd)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"]) == ("pending", "invalid_value")


async def test_a_direct_call_can_set_a_timer_on_an_idle_and_on_a_waiting_run() -> None:
    script = Script(Ok())

    @script.method
    async def remind(tick: Tick, payload: dict[str, Any]) -> None:
        await tick.set_timer(payload["name"], after_ms=payload["ms"])

    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.call_clog(run_id=run_id, method="remind", payload={"name": "late", "ms": 100})
        assert ((await look(w, run_id)).status, (await look(w, run_id)).wake_at) == ("waiting", w.clock.now() + 100)
        await w.ocean.call_clog(run_id=run_id, method="remind", payload={"name": "early", "ms": 40})
        assert (await look(w, run_id)).wake_at == w.clock.now() + 40
        w.clock.advance(100)
        await w.drain()
        assert [seen.timer for seen in script.seen] == [None, "early", "late"]


@pytest.mark.parametrize("first_wait", [Ok(), Wait(for_ms=9_000)], ids=str)
async def test_a_timer_postponed_or_cancelled_by_a_direct_call_leaves_no_empty_tick_behind(first_wait: Outcome) -> None:
    async def armed(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=100)
        return first_wait

    script = Script(armed, Ok())

    @script.method
    async def postpone(tick: Tick, payload: Any) -> None:
        await tick.set_timer("t", after_ms=500)

    @script.method
    async def cancel(tick: Tick, payload: Any) -> None:
        await tick.cancel_timer("t")

    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.call_clog(run_id=run_id, method="postpone")
        assert (await look(w, run_id)).wake_at == w.clock.now() + 500
        await w.ocean.call_clog(run_id=run_id, method="cancel")
        run = await look(w, run_id)
        waits_on = isinstance(first_wait, Wait)
        assert (run.status, run.wake_at) == (("waiting", w.clock.now() + 9_000) if waits_on else ("idle", None))
        w.clock.advance(1_000)
        assert await w.drain() == []
