"""Ends by the kernel: cancel, deadline, exhausted attempts; with and without a last tick."""

import anyio
import pytest

from ocean import (
    Done,
    Failed,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    RunEnded,
    RunFailed,
    RunNotFound,
    RunNotIncomplete,
    Tick,
    Wait,
)
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, dump, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio


async def test_a_cancelled_run_ends_failed_with_code_cancelled() -> None:
    """O7: a run can be cancelled, and records why and by whom."""
    script = Script(Wait(for_ms=1_000))
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        run = await w.ocean.cancel_run(run_id, reason="not needed", actor="ada")
        assert (run.status, run.error) == (
            "failed",
            {"code": "cancelled", "message": "not needed", "details": None},
        )
        assert (run.wake_at, run.due_at, run.ended_at) == (None, None, w.clock.now())
        last = (await log(w, run_id))[-1]
        assert (last.type, last.actor, last.payload) == ("run.failed", "ada", {"error": run.error})
        w.clock.advance(10_000)
        assert await w.drain() == []


async def test_cancelling_an_ended_or_unknown_run_is_refused() -> None:
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        await w.drain()
        before = await dump(w)
        with pytest.raises(RunEnded):
            await w.ocean.cancel_run(run_id)
        with pytest.raises(RunNotFound):
            await w.ocean.cancel_run("nobody")
        assert await dump(w) == before


async def test_a_cancelled_run_with_on_end_gets_one_last_tick_to_clean_up() -> None:
    async def clean(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        await tick.write(run={"cleaned": True, "was": rows.run})
        await tick.emit("cleaned")
        return Ok()

    script = Script(Ok(), ends=(clean,))
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        ending = await w.ocean.cancel_run(run_id, reason="stop")
        assert (ending.status, ending.ending) == ("pending", "cancel")
        with pytest.raises(RunEnded):
            await w.ocean.signal(run_id, "too late")
        assert (await w.ocean.cancel_run(run_id)).ending == "cancel"
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"], run.ending) == ("failed", "cancelled", None)
        (end,) = script.ends
        assert (end.reason, end.number, end.inputs) == ("cancel", 2, ())
        tail = [kind for kind in await types(w, run_id) if not kind.startswith("run.created")]
        assert tail == ["tick.committed", "run.ending", "cleaned", "tick.committed", "run.failed"]


@pytest.mark.parametrize("outcome", [Ok(), Done("ignored"), Failed("ignored"), Wait(for_ms=5)], ids=lambda a: str(a))
async def test_whatever_the_last_tick_returns_the_run_ends_with_the_first_error(outcome: Outcome) -> None:
    script = Script(Ok(), ends=(outcome,))
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.cancel_run(run_id, reason="stop")
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.output) == ("failed", None)
        assert run.error == {"code": "cancelled", "message": "stop", "details": None}


@pytest.mark.parametrize("how", ["retry", "raise", "crash"])
async def test_a_last_tick_that_fails_is_called_again(how: str) -> None:
    async def fail(tick: Tick) -> Outcome:
        await tick.emit("half")
        if how == "raise":
            raise ValueError("no")
        return Retry("no")

    script = Script(Ok(), ends=(Ok(),) if how == "crash" else (fail, Ok()))
    async with stage(script) as w:
        run_id = await start_idle(w, retry=RetryPolicy(max_attempts=1))
        await w.ocean.cancel_run(run_id, reason="stop")
        if how == "crash":
            await die_holding(w, script)
            w.clock.advance(LOCK_MS)
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"], run.attempt, run.end_incomplete) == ("failed", "cancelled", 0, False)
        last = script.ends[-1]
        assert (last.number, last.call, last.attempt, last.reason) == (1, 2, 1, "cancel")
        assert await log(w, run_id, "half") == []


async def test_a_run_whose_last_tick_never_succeeds_ends_incomplete_and_can_be_repeated() -> None:
    script = Script(Ok(), ends=(Retry("no line"),) * 2 + (Ok(),), end_retry=RetryPolicy(max_attempts=2))
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.cancel_run(run_id, reason="stop")
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.end_incomplete, run.end_attempt) == ("failed", True, 2)
        (event,) = await log(w, run_id, "run.end_incomplete")
        assert (event.payload["attempts"], event.payload["error"]["message"]) == (2, "no line")
        again = await w.ocean.retry_end(run_id, actor="ada", request_key="once")
        assert (again.status, again.ending) == ("pending", "cancel")
        assert await w.ocean.retry_end(run_id, actor="ada", request_key="once") == again
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.end_incomplete) == ("failed", False)
        assert [(seen.number, seen.call, seen.attempt) for seen in script.ends] == [(1, 1, 0), (1, 2, 1), (1, 3, 0)]
        with pytest.raises(RunNotIncomplete):
            await w.ocean.retry_end(run_id)


async def test_undelivered_inputs_are_not_given_to_the_last_tick_but_named() -> None:
    script = Script(Ok(), ends=(Ok(),), inputs="all")
    async with stage(script) as w:
        run_id = await start(w, "first")
        await w.ocean.signal(run_id, "second", signal_id="x")
        await w.ocean.cancel_run(run_id)
        await w.drain()
        (end,) = script.ends
        assert (end.reason, end.inputs, script.seen) == ("cancel", (), [])
        (undelivered,) = await log(w, run_id, "signal.undelivered")
        assert undelivered.payload["inputs"] == [
            {"number": 1, "kind": "created", "signal_id": None},
            {"number": 2, "kind": "signal", "signal_id": "x"},
        ]


async def test_a_deadline_ends_a_run_in_any_status() -> None:
    """O7: idle, waiting and backing-off runs alike; not a millisecond early."""
    async with stage(Script(Wait(for_ms=9_999_999)), Script(Retry("no", after_ms=9_999_999), clog_id="retrying")) as w:
        at = w.clock.now() + 500
        runs = [
            await start_idle(w, deadline_at=at),
            await start(w, deadline_at=at),
            await start(w, clog_id="retrying", deadline_at=at),
        ]
        await w.drain()
        assert [(await look(w, run_id)).status for run_id in runs] == ["idle", "waiting", "pending"]
        assert (await w.ocean.advance()).next_wake_at == at
        w.clock.advance(499)
        await w.drain()
        assert not any([(await look(w, run_id)).is_ended for run_id in runs])
        w.clock.advance(1)
        await w.drain()
        for run_id in runs:
            run = await look(w, run_id)
            assert run.error is not None
            assert (run.status, run.error["code"]) == ("failed", "deadline_exceeded")


async def test_a_deadline_gives_on_end_its_last_tick_with_that_reason() -> None:
    script = Script(Ok(), ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start_idle(w, deadline_at=w.clock.now() + 10)
        w.clock.advance(10)
        await w.drain()
        assert [seen.reason for seen in script.ends] == ["deadline"]
        run = await look(w, run_id)
        assert run.error is not None
        assert run.error["code"] == "deadline_exceeded"


async def test_a_deadline_is_kept_by_an_instance_that_does_not_know_the_clog() -> None:
    async with stage(Script(Ok())) as w:
        run_id = await start_idle(w, deadline_at=w.clock.now() + 10)
        other_instance = await w.instance([Script(clog_id="other")])
        w.clock.advance(10)
        await other_instance.advance()
        assert (await look(w, run_id)).status == "failed"


async def test_used_up_attempts_give_on_end_its_last_tick_and_keep_the_last_error() -> None:
    script = Script(Retry({"code": "down", "message": "no line"}), ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w, "work", retry=RetryPolicy(max_attempts=2))
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == ("failed", 2)
        assert run.error == {"code": "down", "message": "no line", "details": None}
        assert [(seen.reason, seen.number, seen.attempt) for seen in script.ends] == [("exhausted", 2, 0)]
        (undelivered,) = await log(w, run_id, "signal.undelivered")
        assert undelivered.payload["inputs"] == [{"number": 1, "kind": "created", "signal_id": None}]


async def test_a_crash_that_spends_the_attempts_still_gives_on_end_its_tick() -> None:
    script = Script(Ok(), ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=1))
        await die_holding(w, script)
        w.clock.advance(LOCK_MS)
        await w.drain()
        assert ([seen.reason for seen in script.ends], script.seen) == (["exhausted"], [])
        run = await look(w, run_id)
        assert run.error is not None
        assert run.error["code"] == "crashed"


async def test_a_run_on_its_last_call_is_ended_by_an_instance_without_its_clog() -> None:
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=1))
        await die_holding(w, script)
        w.clock.advance(LOCK_MS)
        other_instance = await w.instance([Script(clog_id="other")])
        await other_instance.advance()
        assert (await look(w, run_id)).status == "failed"


@pytest.mark.parametrize("has_on_end", [False, True])
async def test_cancelling_a_run_at_work_takes_its_lock_away(has_on_end: bool) -> None:
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run="written by a handler that was stopped")
        began.set()
        await go_on.wait()
        return Done("never")

    script = Script(slow, ends=(Ok(),) if has_on_end else None)
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            await w.ocean.cancel_run(run_id)
            go_on.set()
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"], run.output) == ("failed", "cancelled", None)
        assert (await dump(w))["ocean_storage_run"] == []
        assert len(script.ends) == int(has_on_end)
        with pytest.raises(RunFailed) as failed:
            await w.ocean.result(run_id)
        assert failed.value.error["code"] == "cancelled"


async def test_an_end_names_at_most_a_hundred_undelivered_inputs_and_counts_all() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        for n in range(101):
            await w.ocean.signal(run_id, n)
        await w.ocean.cancel_run(run_id)
        (undelivered,) = await log(w, run_id, "signal.undelivered")
        assert (undelivered.payload["count"], len(undelivered.payload["inputs"])) == (101, 100)
