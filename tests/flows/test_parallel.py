"""Children, and `flow.gather`: each branch has its own positions, and nothing is left behind."""

from typing import Any

import anyio
import pytest

from ocean import Abort, ChildFailed, Clog, Flow, InvalidValue, RetryPolicy, RunStatus, StepFailed
from tests.flows.kit import Effects, Function, events_of, flow_clog, journal, look, stage, start

pytestmark = pytest.mark.anyio


def square() -> Clog:
    async def work(flow: Flow, input: int) -> int:
        if input > 3:
            raise Abort(f"{input} is too big", code="too_big")
        await flow.sleep(1_000 * input)
        return input * input

    return flow_clog(work, "square")


async def test_a_child_is_started_once_and_its_output_stored() -> None:
    async def lead(flow: Flow, input: Any) -> Any:
        answer = await flow.child("square", 3)
        await flow.sleep(1_000)
        return answer

    async with stage(lead, square()) as w:
        run_id = await start(w)
        await w.drain()
        children = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert hold.message.endswith(f"the flow waits for child {children[0].run_id}")
        await w.wait(4_000)
        assert (await look(w, run_id)).output == 9
        assert len((await w.ocean.list_runs(parent_run_id=run_id)).runs) == 1


async def test_many_children_are_joined_in_order_and_a_failed_one_can_be_caught() -> None:
    async def lead(flow: Flow, input: Any) -> Any:
        results: list[Any] = await flow.gather(*(flow.child("square", n) for n in (3, 4, 1, 2)), return_exceptions=True)
        return [result.error["code"] if isinstance(result, ChildFailed) else result for result in results]

    async with stage(lead, square()) as w:
        run_id = await start(w)
        await w.wait(3_000)
        assert (await look(w, run_id)).output == [9, "too_big", 1, 4]


async def test_a_child_started_early_may_be_joined_later() -> None:
    async def lead(flow: Flow, input: Any) -> Any:
        child = await flow.start("square", 1)
        await flow.sleep(60_000)
        return await flow.join(child)

    async with stage(lead, square()) as w:
        run_id = await start(w)
        await w.wait(30_000)
        assert len((await journal(w, run_id))["ends"]) == 1
        await w.wait(30_000)
        assert (await look(w, run_id)).output == 1


@pytest.mark.parametrize(("choice", "status"), [({}, RunStatus.FAILED), ({"on_parent_end": "live"}, RunStatus.WAITING)])
async def test_children_end_with_the_flow_unless_they_may_outlive_it(choice: Any, status: RunStatus) -> None:
    async def lead(flow: Flow, input: Any) -> Any:
        await flow.start("square", 3, **choice)
        await flow.sleep(1_000)

    async with stage(lead, square()) as w:
        run_id = await start(w)
        await w.wait(1_500)
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert child.status is status


async def test_an_uncaught_failure_of_a_child_is_the_flows() -> None:
    async def lead(flow: Flow, input: Any) -> Any:
        await flow.child("square", 4)

    async with stage(lead, square()) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "child_failed"
        assert error["details"]["error"]["code"] == "too_big"


async def test_branches_of_several_operations_and_their_steps_run_concurrently() -> None:
    effects, met = Effects(), anyio.Event()

    async def wait_for_the_other(key: str, first: bool) -> bool:
        if first:
            with anyio.fail_after(5):
                await met.wait()
        else:
            met.set()
        return first

    async def line(flow: Flow, first: bool) -> int:
        await flow.step("meet", wait_for_the_other, first)
        await flow.sleep(2_000 if first else 1_000)
        await flow.step("after", effects.do, first)
        return await flow.now()

    async def both(flow: Flow, input: Any) -> Any:
        one, other = await flow.gather(line(flow, True), line(flow, False))
        return one - other

    async with stage(both) as w:
        run_id = await start(w)
        await w.wait(2_000)
        assert (await look(w, run_id)).output == 1_000
        assert effects.done == [False, True]
        assert [key.partition("/")[2] for key in effects.keys] == ["gather.1%2Fafter", "gather.0%2Fafter"]


async def test_a_gather_ends_when_all_have_ended_and_then_raises_the_first_error() -> None:
    effects = Effects()

    async def slow(flow: Flow) -> None:
        await flow.sleep(60_000)
        await flow.step("late", effects.do, "late")

    async def both(flow: Flow, input: Any) -> Any:
        once = RetryPolicy(max_attempts=1)
        broken = [flow.step(name, effects.failing(9, name), retry=once) for name in ("a", "b")]
        try:
            await flow.gather(slow(flow), *broken)
        except StepFailed as failed:
            return [failed.step, failed.error["message"], effects.done]

    async with stage(both) as w:
        run_id = await start(w)
        await w.wait(59_999)
        assert (await look(w, run_id)).status is RunStatus.WAITING
        await w.wait(1)
        assert (await look(w, run_id)).output == ["gather.1/a", "OSError: a", ["late"]]


async def test_gathers_may_be_nested_and_may_be_empty() -> None:
    effects = Effects()

    async def pair(flow: Flow, name: str) -> list[Any]:
        return await flow.gather(flow.step("x", effects.do, name), flow.sleep(1_000))

    async def nest(flow: Flow, input: Any) -> Any:
        nothing: list[Any] = await flow.gather()
        return [nothing, await flow.gather(pair(flow, "a"), pair(flow, "b"))]

    async with stage(nest) as w:
        run_id = await start(w)
        await w.wait(1_000)
        assert (await look(w, run_id)).output == [[], [["a", None], ["b", None]]]
        assert sorted(effects.done) == ["a", "b"]


@pytest.mark.sqlite
async def test_what_cannot_be_gathered_or_started_is_named() -> None:
    async def wrong(flow: Flow, input: Any) -> Any:
        found = []
        for ask in (lambda: flow.gather(flow.sleep(1), 7), lambda: flow.start("square", dedupe_key="k")):  # type: ignore[arg-type]
            try:
                await ask()
            except InvalidValue as error:
                found.append(str(error))
        return found

    async with stage(wrong) as w:
        run_id = await start(w)
        await w.drain()
        gather, dedupe = (await look(w, run_id)).output
        assert gather.endswith("got 7")
        assert "must not have a dedupe_key" in dedupe


async def test_the_events_of_a_flow_show_its_progress() -> None:
    async def lead(flow: Flow, input: Any) -> Any:
        await flow.gather(flow.sleep(1), flow.wait_for_signal("go"))

    function: Function = lead
    async with stage(function) as w:
        run_id = await start(w)
        began = w.clock.now()
        await w.drain()
        waits = sorted((found["for"], found["until"]) for _, found in await events_of(w, run_id, "flow.waiting"))
        assert waits == [("signal", None), ("sleep", began + 1)]
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert "sleep 'gather.0/sleep'" in hold.message
        assert "signal 'gather.1/go'" in hold.message
