"""`result`: the output, the failure, or the timeout."""

import anyio
import pytest

from ocean import Continue, Done, Failed, Ok, Outcome, ResultTimeout, Retry, RunFailed, RunNotFound, Tick
from ocean.kernel.new_runs import new_run
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, let_others_go_on, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_result_pokes_the_run_and_returns_its_output() -> None:
    async with stage(Script(Continue(), Continue(), Done([1, None]))) as w:
        assert await w.ocean.result(await start(w)) == [1, None]


async def test_waiting_for_an_active_run_does_not_poke() -> None:
    begun, go_on, outputs = anyio.Event(), anyio.Event(), list[object]()

    async def act(tick: Tick) -> Outcome:
        begun.set()
        await go_on.wait()
        return Done("at last")

    async with stage(Script(act)) as w, anyio.create_task_group() as tasks:
        run_id = await start(w)
        tasks.start_soon(w.ocean.advance)
        await begun.wait()

        async def wait() -> None:
            outputs.append(await w.ocean.result(run_id))
            outputs.append((await w.ocean.settle(run_id)).output)

        tasks.start_soon(wait)
        await let_others_go_on(w)
        go_on.set()
        with anyio.fail_after(20):
            while len(outputs) < 2:
                await let_others_go_on(w)
        assert outputs == ["at last", "at last"]
        assert "wait" not in w.ocean.observed.pokes


async def test_result_raises_the_run_s_structured_error() -> None:
    async with stage(Script(Failed({"code": "no_card", "message": "declined", "details": [1]}))) as w:
        run_id = await start(w)
        with pytest.raises(RunFailed, match="declined") as failed:
            await w.ocean.result(run_id)
        assert failed.value.error == {"code": "no_card", "message": "declined", "details": [1]}
        assert failed.value.details["run_id"] == run_id


async def test_result_of_a_run_that_does_not_end_in_time_raises_and_leaves_it_alone() -> None:
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


@pytest.mark.parametrize("what", ["its child", "the holder of its key"])
async def test_result_continues_when_what_the_run_waits_for_can_be_taken_over(what: str) -> None:
    """The run itself is never due: it continues when the other run's lock expires, without any other commit."""
    clog = Script(Done("over"))
    async with stage(clog) as w:
        if what == "its child":
            run_id = await start_idle(w)
            child = {"parent_run_id": run_id, "notify_parent": True}
            new = new_run(run_id="c", is_id_given=True, session_id="s", clog_id="c", input=1, actor=None, **child)  # type: ignore[arg-type]
            await w.store.create_run(new, None)
            await die_holding(w, clog)
        else:
            await start(w, concurrency_keys=["k"])
            await die_holding(w, clog)
            run_id = await start(w, concurrency_keys=["k"])
        outputs: list[object] = []

        async def wait() -> None:
            outputs.append(await w.ocean.result(run_id, timeout_ms=10 * LOCK_MS))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await let_others_go_on(w)
                w.clock.advance(LOCK_MS)
        assert outputs == ["over"]
