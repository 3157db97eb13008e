"""`result`: the output, the failure, or that it takes longer."""

import anyio
import pytest

from ocean import Continue, Done, Failed, Ok, Outcome, ResultTimeout, Retry, RunFailed, RunNotFound, Tick
from tests.lifecycle.acting import Script, let_others_go_on, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_result_pokes_the_run_and_answers_its_output() -> None:
    async with stage(Script(Continue(), Continue(), Done([1, None]))) as w:
        assert await w.ocean.result(await start(w)) == [1, None]


async def test_result_raises_the_run_s_structured_error() -> None:
    async with stage(Script(Failed({"code": "no_card", "message": "declined", "details": [1]}))) as w:
        run_id = await start(w)
        with pytest.raises(RunFailed, match="declined") as failed:
            await w.ocean.result(run_id)
        assert failed.value.error == {"code": "no_card", "message": "declined", "details": [1]}
        assert failed.value.details["run_id"] == run_id


async def test_result_of_a_run_that_does_not_end_in_time_says_so_and_leaves_it_alone() -> None:
    async with stage(Script(Ok())) as w:
        run_id = await start_idle(w)
        with pytest.raises(ResultTimeout) as late:
            await w.ocean.result(run_id, timeout_ms=0)
        assert (late.value.http_status, late.value.retryable) == (504, True)
        assert (await look(w, run_id)).status == "idle"
        with pytest.raises(RunNotFound):
            await w.ocean.result("nobody")


async def test_result_waits_over_backoffs_and_for_signals_of_others() -> None:
    outputs: list[object] = []

    async def act(tick: Tick) -> Outcome:
        if tick.reason == "signal":
            return Done(tick.input)
        return Retry("no", after_ms=100) if tick.call_number == 1 else Ok()

    async with stage(Script(act)) as w:
        run_id = await start(w)

        async def wait() -> None:
            outputs.append(await w.ocean.result(run_id, timeout_ms=10_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while (await look(w, run_id)).attempt == 0:
                await let_others_go_on(w)
            while (await look(w, run_id)).status != "idle":
                w.clock.advance(50)
                await let_others_go_on(w)
            await w.ocean.signal(run_id, "at last")
        assert outputs == ["at last"]


async def test_result_on_an_instance_without_the_clog_waits_for_another_s_work() -> None:
    outputs: list[object] = []
    async with stage(Script(Done("done elsewhere"))) as w:
        run_id = await start(w)
        watcher = await w.instance()

        async def wait() -> None:
            outputs.append(await watcher.result(run_id, timeout_ms=10_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await let_others_go_on(w)
            await w.drain()
        assert outputs == ["done elsewhere"]
