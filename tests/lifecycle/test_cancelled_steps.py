"""A run that is ended during a call: a step in flight may finish, nothing else of the call is kept."""

import threading
from typing import Any

import anyio
import pytest

from ocean import Done, LockLost, Ok, Outcome, RetryPolicy, Tick
from tests.lifecycle.acting import Script, dump, log, look, stage, start

pytestmark = pytest.mark.anyio

GRACE_MS = 4_000


class Gate:
    """Lets a test wait until a handler is at a place, and the handler until the test goes on."""

    def __init__(self) -> None:
        self.reached, self.open = anyio.Event(), anyio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.open.wait()


async def test_a_step_in_flight_is_stored_and_the_last_tick_begins_at_once() -> None:
    gate = Gate()
    seen: list[Any] = []

    async def charge(key: str) -> str:
        await gate.wait()
        return "receipt"

    async def ship(key: str) -> None:
        seen.append("shipped")

    async def charge_again(key: str) -> str:
        return "a second charge"

    async def work(tick: Tick) -> Outcome:
        await tick.emit("never")
        try:
            await tick.step("charge", charge, scope="run")
        finally:
            seen.append(tick.cancel_requested)
        await tick.step("ship", ship)
        return Done()

    async def end(tick: Tick) -> Outcome:
        seen.append(await tick.step("charge", charge_again, scope="run"))
        return Ok()

    script = Script(work, ends=(end,), cancel_grace_ms=GRACE_MS)
    async with stage(script) as w, anyio.create_task_group() as tasks:
        run_id = await start(w)
        tasks.start_soon(w.ocean.advance)
        with anyio.fail_after(10):
            await gate.reached.wait()
            ending = await w.ocean.cancel_run(run_id, reason="stop")
            assert (ending.status, ending.ending) == ("active", "cancel")
            explained = await w.ocean.explain(run_id)
            assert explained.holds[0].until == w.clock.now() + GRACE_MS
            assert "may finish a step of tick 1" in explained.holds[0].message
            gate.open.set()
    assert seen == [True, "receipt"]


async def test_the_result_of_a_step_is_there_when_its_run_has_ended() -> None:
    gate = Gate()

    async def work(tick: Tick) -> Outcome:
        await tick.step("charge", lambda key: gate.wait(), scope="run")
        return Done()

    script = Script(work, ends=(Ok(),), cancel_grace_ms=GRACE_MS)
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await gate.reached.wait()
            await w.ocean.cancel_run(run_id)
            gate.open.set()
        run = await look(w, run_id)
        assert (run.status, len(script.ends), script.ends[0].reason) == ("failed", 1, "cancel")
        assert [row[2] for row in (await dump(w))["ocean_steps"]] == ["c\x1fcharge"]


@pytest.mark.parametrize("grace_ms", [0, GRACE_MS])
async def test_a_handler_that_is_in_no_step_is_stopped_at_once(grace_ms: int) -> None:
    gate, caught = Gate(), []

    async def work(tick: Tick) -> Outcome:
        try:
            await gate.wait()
        except BaseException as error:
            caught.append(type(error).__name__)
            raise
        return Done()

    script = Script(work, ends=(Ok(),), cancel_grace_ms=grace_ms)
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            with anyio.fail_after(10):
                await gate.reached.wait()
                await w.ocean.cancel_run(run_id)
        await w.drain()
        assert caught == ["CancelledError"]
        assert [seen.reason for seen in script.ends] == ["cancel"]


async def test_two_steps_in_flight_may_both_finish() -> None:
    first, second = Gate(), Gate()

    async def work(tick: Tick) -> Outcome:
        async def take(name: str, gate: Gate) -> None:
            await tick.step(name, lambda key: gate.wait(), scope="run")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, "first", first)
            tasks.start_soon(take, "second", second)
        return Done()

    script = Script(work, ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await first.reached.wait()
            await second.reached.wait()
            await w.ocean.cancel_run(run_id)
            first.open.set()
            await w.ocean.get_run(run_id)
            second.open.set()
        assert sorted(row[2] for row in (await dump(w))["ocean_steps"]) == ["c\x1ffirst", "c\x1fsecond"]
        assert (await look(w, run_id)).status == "failed"


async def test_no_step_begins_after_the_cancel() -> None:
    gate, begun = Gate(), []

    async def work(tick: Tick) -> Outcome:
        async def late(key: str) -> None:
            begun.append(key)

        async def wait_then_step() -> None:
            await gate.open.wait()
            with pytest.raises(LockLost, match="begin no further step"):
                await tick.step("late", late)
            begun.append("refused")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_then_step)
            await tick.step("charge", lambda key: _until_refused(gate, begun), scope="run")
        return Done()

    script = Script(work, ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await gate.reached.wait()
            await w.ocean.cancel_run(run_id)
            gate.open.set()
        assert begun == ["refused"]


async def _until_refused(gate: Gate, begun: list[Any]) -> None:
    gate.reached.set()
    while "refused" not in begun:
        await anyio.lowlevel.checkpoint()


async def test_a_step_that_takes_longer_than_the_grace_time_is_not_stored() -> None:
    gate = Gate()

    async def work(tick: Tick) -> Outcome:
        await tick.step("charge", lambda key: gate.wait(), scope="run")
        return Done()

    script = Script(work, ends=(Ok(),), cancel_grace_ms=GRACE_MS)
    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await gate.reached.wait()
            await w.ocean.cancel_run(run_id)
            w.clock.advance(GRACE_MS)
            other = await w.instance([script])
            await other.advance(run_id=run_id)
            gate.open.set()
        run = await look(w, run_id)
        assert (run.status, len(script.ends)) == ("failed", 1)
        assert (await dump(w))["ocean_steps"] == []


async def test_another_process_learns_of_the_end_at_its_next_renewal() -> None:
    gate, requested = Gate(), []

    async def work(tick: Tick) -> Outcome:
        async def charge(key: str) -> None:
            await gate.wait()
            requested.append(tick.cancel_requested)

        await tick.step("charge", charge, scope="run")
        return Done()

    script = Script(work, ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w)
        other = await w.instance([])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await gate.reached.wait()
            await other.cancel_run(run_id)
            w.clock.advance(2_500)
            await w.ocean.get_run(run_id)
            gate.open.set()
        assert requested == [True]
        assert len((await dump(w))["ocean_steps"]) == 1
        assert len(await log(w, run_id, "tick.given_back")) == 1


async def test_a_blocking_handler_in_a_step_is_stored_too() -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def charge(key: str) -> str:
        at_work.set()
        assert go_on.wait(10)
        return "receipt"

    async def work(tick: Tick) -> Outcome:
        await tick.step("charge", charge, scope="run")
        return Done()

    script = Script(work, ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            with anyio.fail_after(10):
                while not at_work.is_set():
                    await w.ocean.get_run(run_id)
            await w.ocean.cancel_run(run_id)
            go_on.set()
        assert len((await dump(w))["ocean_steps"]) == 1
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.status, run.error["code"]) == ("failed", "cancelled")


async def test_a_run_without_on_end_ends_at_once() -> None:
    gate = Gate()

    async def work(tick: Tick) -> Outcome:
        await gate.wait()
        return Done()

    async with stage(Script(work)) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.ocean.advance)
            await gate.reached.wait()
            assert (await w.ocean.cancel_run(run_id)).status == "failed"
            gate.open.set()
