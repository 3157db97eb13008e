"""What each outcome does to status, wake time, attempt and log."""

import asyncio
from typing import Any, cast

import pytest

from ocean import Abort, Continue, Done, Failed, Ok, Outcome, Retry, RetryPolicy, Tick, Wait
from tests.errors import bare
from tests.lifecycle.acting import Script, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio


async def test_ok_makes_a_run_idle_and_leaves_nothing_due() -> None:
    async with stage(Script(Ok())) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.wake_at, run.due_at, run.pending_count) == ("idle", None, None, 0)
        assert await types(w, run_id) == ["run.created", "tick.committed"]


async def test_ok_with_a_timer_set_makes_it_waiting_until_the_timer() -> None:
    async def arm(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=5_000)
        return Ok()

    async with stage(Script(arm)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.wake_at) == ("waiting", w.clock.now() + 5_000)
        assert await types(w, run_id) == ["run.created", "timer.set", "tick.committed", "run.waiting"]


async def test_wait_sleeps_until_its_time_and_not_a_millisecond_less() -> None:
    script = Script(Wait(for_ms=1_000), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).status == "waiting"
        assert (await w.ocean.advance()).next_wake_at == w.clock.now() + 1_000
        w.clock.advance(999)
        assert await w.drain() == []
        w.clock.advance(1)
        await w.drain()
        assert [seen.reason for seen in script.seen] == ["created", "wake"]
        assert script.seen[1].inputs == ()


@pytest.mark.parametrize(("timer_ms", "wakes_in"), [(400, 400), (2_000, 1_000)])
async def test_wait_wakes_at_the_earlier_of_its_time_and_the_next_timer(timer_ms: int, wakes_in: int) -> None:
    async def both(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=timer_ms)
        return Wait(for_ms=1_000)

    async with stage(Script(both, Ok())) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).wake_at == w.clock.now() + wakes_in


async def test_a_wait_without_a_time_is_refused_instead_of_sleeping_for_ever() -> None:
    """O4: `Wait()` without a time or duration fails with a message that states what to do."""

    async def forgetful(tick: Tick) -> Outcome:
        return Wait()

    async with stage(Script(forgetful)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == ("pending", 1)
        assert run.error is not None
        assert "to wait for a signal, return Ok()" in run.error["message"]


async def test_continue_gives_its_input_to_the_next_tick_before_anything_in_the_inbox() -> None:
    """D6: a continuation and a queued signal are two inputs, in this order."""
    script = Script(Continue("next"), Ok())
    async with stage(script) as w:
        run_id = await start(w, "first")
        await w.ocean.signal(run_id, "queued")
        await w.drain()
        assert script.bodies == ["first", "next", "queued"]
        assert [(seen.number, seen.reason) for seen in script.seen] == [(1, "created"), (2, "continue"), (3, "signal")]


async def test_a_signal_during_a_tick_that_continues_does_not_drop_the_continuation() -> None:
    """S4: the user's message queues behind the chain."""

    async def chain(tick: Tick) -> Outcome:
        await w.ocean.signal(tick.run_id, "message")
        return Continue("deliver")

    script = Script(chain, Ok())
    async with stage(script) as w:
        await start(w, "execute")
        await w.drain()
        assert script.bodies == ["execute", "deliver", "message"]


async def test_done_keeps_its_output_in_the_run_and_in_the_event() -> None:
    """O1: the output is stored, logged and returned."""
    async with stage(Script(Done({"answer": 42}))) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.output, run.error, run.ended_at) == ("done", {"answer": 42}, None, w.clock.now())
        assert (await log(w, run_id))[-1].payload == {"output": {"answer": 42}}
        assert await w.ocean.result(run_id) == {"answer": 42}


async def test_failed_keeps_its_structured_error_and_uses_no_further_attempt() -> None:
    script = Script(Failed({"code": "no_card", "message": "declined", "details": {"n": 1}}))
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.error) == (
            "failed",
            {"code": "no_card", "message": "declined", "details": {"n": 1}},
        )
        assert (await log(w, run_id))[-1].payload == {"error": run.error}
        assert len(script.seen) == 1


async def test_backoff_is_one_two_four_seconds_and_the_run_fails_at_its_last_attempt() -> None:
    """O3: 1 s after the first failure, not 2 s."""
    script = Script(Retry("no"))
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=4))
        for attempt, delay in enumerate((1_000, 2_000, 4_000), start=1):
            await w.drain()
            run = await look(w, run_id)
            assert (run.status, run.attempt, run.wake_at) == ("pending", attempt, w.clock.now() + delay)
            w.clock.advance(delay - 1)
            assert await w.drain() == []
            w.clock.advance(1)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == ("failed", 4)
        assert run.error == {"code": "failed", "message": "no", "details": None}
        assert [(seen.number, seen.call, seen.attempt) for seen in script.seen] == [(1, n, n - 1) for n in range(1, 5)]


async def test_progress_resets_the_attempt_so_unrelated_failures_do_not_add_up() -> None:
    """D9: two failures, progress, two more failures: still alive."""
    script = Script(Retry("a"), Retry("b"), Ok(), Retry("c"), Retry("d"), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        for _ in range(2):
            await w.drain()
            w.clock.advance(60_000)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt, run.error) == ("idle", 0, None)
        await w.ocean.signal(run_id)
        for _ in range(3):
            await w.drain()
            w.clock.advance(60_000)
        assert ((await look(w, run_id)).status, len(script.seen)) == ("idle", 6)


async def test_signals_during_a_retry_neither_reset_the_attempt_nor_drop_the_failing_input() -> None:
    """S5: a steady stream of signals cannot keep a failing run alive."""

    async def busy(tick: Tick) -> Outcome:
        await w.ocean.signal(tick.run_id, "noise")
        return Retry("no")

    script = Script(busy)
    async with stage(script) as w:
        run_id = await start(w, "work")
        for _ in range(3):
            await w.drain()
            before = await look(w, run_id)
            await w.ocean.signal(run_id, "more") if before.status == "pending" else None
            assert await w.drain() == [], "a signal cut the back-off short"
            w.clock.advance(60_000)
        assert (await look(w, run_id)).status == "failed"
        assert script.bodies == ["work"] * 3


async def test_retry_after_overrides_the_backoff() -> None:
    async with stage(Script(Retry("slow", after_ms=77), Ok())) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).wake_at == w.clock.now() + 77


async def test_delays_and_elapsed_time_bound_a_policy_without_a_count() -> None:
    script = Script(Retry("no"))
    policy = RetryPolicy(max_attempts=None, delays_ms=(10, 500), max_elapsed_ms=1_000)
    async with stage(script) as w:
        run_id = await start(w, retry=policy)
        waits = []
        while (await look(w, run_id)).status != "failed":
            await w.drain()
            run = await look(w, run_id)
            waits.append((run.wake_at or w.clock.now()) - w.clock.now())
            w.clock.advance(waits[-1])
        assert waits == [10, 500, 500, 0]


async def test_a_handler_that_raises_fails_the_attempt_with_that_error() -> None:
    async def broken(tick: Tick) -> Outcome:
        await tick.emit("said", 1)
        raise KeyError("lost")

    async with stage(Script(broken, Done("ok"))) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert bare(run.error) == {"code": "exception", "message": "KeyError: 'lost'", "details": None}
        assert await types(w, run_id) == ["run.created", "run.retrying"]
        w.clock.advance(1_000)
        await w.drain()
        assert await types(w, run_id) == ["run.created", "run.retrying", "tick.restarted", "tick.committed", "run.done"]


async def test_abort_ends_the_run_at_once_with_its_code() -> None:
    async def abort(tick: Tick) -> Outcome:
        raise Abort("no such account", code="gone", details={"id": 7})

    async with stage(Script(abort)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.status == "failed"
        assert bare(run.error) == {"code": "gone", "message": "no such account", "details": {"id": 7}}


@pytest.mark.parametrize("nonsense", [None, {"status": "ok"}, "done", Ok, 7])
async def test_a_return_value_that_is_no_outcome_is_a_failed_attempt_and_frees_the_lock(nonsense: Any) -> None:
    """O5: the run is not left locked until its TTL."""

    async def odd(tick: Tick) -> Outcome:
        return cast(Outcome, nonsense)

    async with stage(Script(odd)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.locked_by, run.attempt) == ("pending", None, 1)
        assert run.error is not None
        assert run.error["code"] == "bad_outcome"


async def test_an_output_that_is_not_json_is_a_failed_attempt() -> None:
    async with stage(Script(Done({"when": object()}), Done("fine"))) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"]) == ("pending", "invalid_value")
        assert "Done.output.when" in run.error["message"]


async def test_a_run_created_without_input_is_idle_while_none_is_an_input() -> None:
    script = Script(Ok())
    async with stage(script) as w:
        idle, pending = await start_idle(w), await start(w, None)
        assert ((await look(w, idle)).status, (await look(w, pending)).status) == ("idle", "pending")
        await w.drain()
        assert [(seen.reason, seen.inputs) for seen in script.seen] == [("created", (None,))]


@pytest.mark.parametrize("outcome", [Done, Continue])
async def test_a_value_is_stored_as_it_was_when_passed_even_if_it_changes_later(outcome: Any) -> None:
    value: list[int] = [1]

    async def change_later(tick: Tick) -> Outcome:
        asyncio.get_running_loop().call_soon(value.append, 2)
        return cast(Outcome, outcome(value))

    async def repeat(tick: Tick) -> Outcome:
        return Done(tick.input)

    async with stage(Script(change_later, repeat)) as w:
        run_id = await start(w)
        await w.drain()
        assert value == [1, 2]
        assert (await look(w, run_id)).output == [1]
