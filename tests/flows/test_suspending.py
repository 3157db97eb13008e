"""A suspended flow: its clean-up code runs, its operations do not, and nothing of it is left behind."""

import gc
import warnings
from typing import Any

import anyio
import pytest

from ocean import Flow, RetryPolicy, RunStatus
from ocean.testing import world
from tests.flows.kit import Effects, events_of, flow_clog, journal, look, stage, start

pytestmark = pytest.mark.anyio


async def test_finally_runs_at_every_suspension_but_its_operations_only_once_reached() -> None:
    effects, closed = Effects(), []

    async def order(flow: Flow, input: Any) -> Any:
        try:
            await flow.sleep(1_000)
            return "slept"
        finally:
            closed.append("closed")
            await flow.step("clean", effects.do, "clean")

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        assert (effects.done, closed) == ([], ["closed"])
        await w.wait(1_000)
        assert (effects.done, closed) == (["clean"], ["closed"] * 2)
        assert (await look(w, run_id)).output == "slept"


async def test_what_a_flow_does_when_it_is_suspended_is_ignored() -> None:
    async def takes_everything(flow: Flow, input: Any) -> Any:
        try:
            await flow.sleep(1_000)
        except BaseException:
            return "too early"
        return "in time"

    async def raises_instead(flow: Flow, input: Any) -> Any:
        try:
            await flow.sleep(1_000)
        except BaseException as error:
            raise RuntimeError("wrapped") from error
        return "in time"

    for function in (takes_everything, raises_instead):
        async with stage(function) as w:
            run_id = await start(w, retry=RetryPolicy(max_attempts=1))
            await w.drain()
            assert (await look(w, run_id)).status is RunStatus.WAITING
            await w.wait(1_000)
            assert (await look(w, run_id)).output == "in time"


async def test_a_task_group_of_the_flows_own_is_suspended_too() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flow.sleep, 1_000)
        return "slept"

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).status is RunStatus.WAITING
        await w.wait(1_000)
        assert (await look(w, run_id)).output == "slept"


async def test_no_coroutine_is_left_without_being_awaited() -> None:
    async def line(flow: Flow) -> None:
        try:
            await flow.sleep(1_000)
        finally:
            await flow.emit("never")

    async def order(flow: Flow, input: Any) -> Any:
        await flow.gather(line(flow), flow.wait_for_signal("go"), flow.step("a", Effects().do, 1))
        await flow.gather(flow.sleep(1), line(flow))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with stage(order) as w:
            run_id = await start(w)
            await w.wait(500)
            assert await events_of(w, run_id, "never") == []
            await w.ocean.cancel_run(run_id)
            await w.drain()
            gc.collect()
    assert [str(warning.message) for warning in caught if "coroutine" in str(warning.message)] == []


async def test_a_dry_run_stops_at_the_first_new_step_and_names_it() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("charge", effects.do, 1)
        await flow.sleep(1_000)
        await flow.emit("awake")
        await flow.gather(flow.step("ship", effects.do, 2), flow.sleep(5))
        return "done"

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert shown is not None
        assert shown.stopped_at is not None
        assert (shown.stopped_at.kind, shown.stopped_at.name) == ("step", "gather.0/ship")
        assert [event.type for event in shown.events if event.type == "awake"] == ["awake"]
        assert effects.done == [1]
        await w.wait(5)
        assert (await look(w, run_id)).output == "done"


async def test_a_dry_run_of_a_flow_that_only_waits_shows_its_journal() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        await flow.wait_for_signal("go")

    async with stage(order) as w:
        run_id = await start(w, 7)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert shown is not None
        (row,) = shown.rows
        assert (row.before, row.after["input"], row.after["entries"]["0"]["name"]) == (None, 7, "go")


async def test_a_paused_flow_stops_and_continues_when_resumed() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.sleep(1_000)
        await flow.step("ship", effects.do, 1)

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.pause_run(run_id)
        await w.wait(10_000)
        assert effects.done == []
        await w.ocean.resume_run(run_id)
        await w.drain()
        assert effects.done == [1]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_flow_without_anything_to_undo_ends_when_the_kernel_ends_it(how: str) -> None:
    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("look", Effects().do, 1)
        await flow.wait_for_signal()

    async with stage(order) as w:
        run_id = await start(w, deadline_at=w.clock.now() + 1_000 if how == "deadline" else None)
        await w.drain()
        if how == "cancel":
            await w.ocean.cancel_run(run_id)
        await w.wait(1_000)
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == {"cancel": "cancelled", "deadline": "deadline_exceeded"}[how]
        assert (await w.ocean.list_runs()).runs[0].run_id == run_id


async def test_a_bug_is_retried_by_the_runs_own_policy() -> None:
    calls: list[int] = []

    async def buggy(flow: Flow, input: Any) -> Any:
        calls.append(await flow.step("n", Effects().do, 1))
        raise ValueError("a bug")

    async with stage(buggy) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=2))
        await w.wait(100_000)
        info = await look(w, run_id)
        assert info.error is not None
        assert (info.status, info.error["message"]) == (RunStatus.FAILED, "ValueError: a bug")
        assert (info.attempt, len(calls)) == (2, 3), "two attempts, and the last tick looks for what is left to do"


async def test_two_worlds_of_the_same_clog_are_independent() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        await flow.gather(flow.sleep(10), flow.sleep(20))
        return input

    clog = flow_clog(order)
    async with world(clogs=[clog]) as one, world(clogs=[clog]) as other:
        runs = [await start(one, 1), await start(other, 2)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.wait, 20)
            tasks.start_soon(other.wait, 20)
        assert ((await look(one, runs[0])).output, (await look(other, runs[1])).output) == (1, 2)
        assert (await journal(one, runs[0]))["input"] == 1
