"""Pausing a run or a whole clog: signals queue, direct calls work, a deadline still ends it."""

from typing import Any

import anyio
import pytest

from ocean import Done, Ok, Outcome, RetryPolicy, RunEnded, RunNotFound, Tick, UnknownClog, Wait
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, dump, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio


async def test_a_paused_run_keeps_its_signals_for_later() -> None:
    script = Script(Ok())

    @script.method
    async def put(tick: Tick, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run=payload)

    async with stage(script) as w:
        run_id = await start(w, "first")
        assert (await w.ocean.pause_run(run_id, actor="ada")).paused
        await w.ocean.signal(run_id, "second")
        await w.ocean.call_clog(run_id=run_id, method="put", payload=1)
        advanced = await w.ocean.advance()
        assert (advanced.advanced, advanced.due_now, advanced.next_wake_at) == (0, 0, None)
        run = await w.ocean.resume_run(run_id)
        assert (run.paused, run.status, run.pending_count) == (False, "pending", 2)
        await w.drain()
        assert script.bodies == ["first", "second"]
        pause_events = [kind for kind in await types(w, run_id) if kind in ("run.paused", "run.resumed")]
        assert pause_events == ["run.paused", "run.resumed"]


async def test_pausing_twice_has_no_further_effect() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        await w.ocean.pause_run(run_id)
        before = await dump(w)
        await w.ocean.pause_run(run_id)
        assert await dump(w) == before


async def test_a_paused_run_still_ends_at_its_deadline() -> None:
    async with stage(Script()) as w:
        at = w.clock.now() + 100
        run_id = await start(w, deadline_at=at)
        await w.ocean.pause_run(run_id)
        assert (await w.ocean.advance()).next_wake_at == at
        w.clock.advance(100)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"], run.paused) == ("failed", "deadline_exceeded", False)


async def test_a_wake_time_that_passes_during_a_pause_is_due_at_the_resumption() -> None:
    script = Script(Wait(for_ms=10), Done())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.pause_run(run_id)
        w.clock.advance(1_000)
        assert await w.drain() == []
        await w.ocean.resume_run(run_id)
        await w.drain()
        assert [seen.reason for seen in script.seen] == ["created", "wake"]


async def test_a_handler_at_work_when_its_run_is_paused_finishes_its_tick() -> None:
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        began.set()
        await go_on.wait()
        return Ok()

    script = Script(slow, Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.ocean.signal(run_id, "queued")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await began.wait()
            await w.ocean.pause_run(run_id)
            go_on.set()
        run = await look(w, run_id)
        assert (run.status, run.paused, len(script.seen)) == ("pending", True, 1)


async def test_a_run_that_crashed_while_paused_waits_for_its_resumption() -> None:
    script = Script(Done())
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=1))
        await die_holding(w, script)
        await w.ocean.pause_run(run_id)
        w.clock.advance(LOCK_MS)
        assert await w.drain() == []
        assert (await look(w, run_id)).status == "active"
        await w.ocean.resume_run(run_id)
        await w.drain()
        assert (await look(w, run_id)).status == "failed"


async def test_a_paused_clog_holds_all_its_runs_on_every_instance() -> None:
    script = Script(Done())
    async with stage(script, Script(Done(), clog_id="d")) as w:
        runs = [await start(w), await start(w)]
        other = await start(w, clog_id="d")
        record = await w.ocean.pause_clog("c", actor="ada")
        assert (record.clog_id, record.paused) == ("c", True)
        second = await w.instance([Script(Done())])
        advanced = await second.advance()
        assert (advanced.advanced, advanced.unclaimable) == (0, 3)
        advanced = await w.ocean.advance()
        assert (advanced.advanced, advanced.due_now, advanced.unclaimable) == (1, 0, 2)
        assert (await look(w, other)).status == "done"
        await w.ocean.resume_clog("c")
        await w.drain()
        assert [(await look(w, run_id)).status for run_id in runs] == ["done", "done"]
        assert [event.actor for event in await log(w, None, "clog.paused")] == ["ada"]


async def test_a_run_of_a_paused_clog_still_ends_at_its_deadline() -> None:
    script = Script(ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w, deadline_at=w.clock.now() + 10)
        await w.ocean.pause_clog("c")
        w.clock.advance(10)
        await w.drain()
        assert ((await look(w, run_id)).status, [seen.reason for seen in script.ends]) == ("failed", ["deadline"])


async def test_what_cannot_be_paused_is_refused() -> None:
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        await w.drain()
        before = await dump(w)
        for verb in (w.ocean.pause_run, w.ocean.resume_run):
            with pytest.raises(RunEnded):
                await verb(run_id)
            with pytest.raises(RunNotFound):
                await verb("nobody")
        for clog_verb in (w.ocean.pause_clog, w.ocean.resume_clog):
            with pytest.raises(UnknownClog):
                await clog_verb("nobody")
        assert await dump(w) == before
