"""`Cancelled` is raised where a flow waits when its run is ended; what its handlers do is stored like the rest."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from ocean import Abort, Cancelled, ChildFailed, Flow, RetryPolicy, RunStatus, SignalTimeout
from ocean.testing import World
from tests.flows.kit import Effects, events_of, flow_clog, look, stage, start
from tests.flows.test_undo import undo_run
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

WAITS: dict[str, Callable[[Flow], Awaitable[Any]]] = {
    "sleep": lambda flow: flow.sleep(3_600_000),
    "signal": lambda flow: flow.wait_for_signal("go"),
    "signal with a time limit": lambda flow: flow.wait_for_signal("go", timeout_ms=3_600_000),
    "child": lambda flow: flow.child("kid"),
    "step between attempts": lambda flow: flow.step("broken", Effects().failing(99)),
    "gather": lambda flow: flow.gather(flow.sleep(3_600_000), flow.wait_for_signal()),
}


class Log:
    """What the handlers of a flow have seen; `wait` is where the flow waits."""

    def __init__(self, wait: Callable[[Flow], Awaitable[Any]] = WAITS["signal"]) -> None:
        self.effects = Effects()
        self.caught: list[Any] = []
        self.wait = wait

    async def order(self, flow: Flow, input: Any) -> Any:
        """Pay, wait, and clean up with everything that a flow can do."""
        paid = await flow.step("pay", self.effects.do, "paid")
        try:
            await self.wait(flow)
        except Cancelled as cancelled:
            self.caught.append((cancelled.reason, cancelled.error["code"]))
            await flow.step("refund", self.effects.do, f"refunded {paid}")
            await flow.sleep(1_000)
            raise
        finally:
            await flow.step("tell", self.effects.do, "told")
            await flow.emit("closed")


async def kid(flow: Flow, input: Any) -> Any:
    await flow.wait_for_signal()


@pytest.mark.parametrize("where", WAITS)
async def test_cancelled_is_raised_wherever_a_flow_waits_and_handlers_go_on_durably(where: str) -> None:
    log = Log(WAITS[where])
    async with stage(log.order, flow_clog(kid, "kid")) as w:
        run_id = await start(w)
        await w.drain()
        assert log.caught == []
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert log.effects.done == ["paid", "refunded paid"]
        assert (await look(w, run_id)).status is RunStatus.FAILED
        await w.wait(1_000)
        assert log.effects.done == ["paid", "refunded paid", "told"]
        assert set(log.caught) == {("cancel", "cancelled")}
        cleaning = await undo_run(w, run_id)
        assert ((await look(w, cleaning)).status, (await look(w, cleaning)).output) == (RunStatus.DONE, {"undone": []})
        assert await events_of(w, cleaning, "closed") == [("closed", None)]


@pytest.mark.parametrize("reason", ["cancel", "parent", "deadline", "exhausted"])
async def test_cancelled_has_the_reason_and_the_error(reason: str) -> None:
    log = Log()

    async def parent(flow: Flow, input: Any) -> Any:
        await flow.start("f")
        await flow.sleep(1_000)

    async def breaks(flow: Flow) -> Any:
        raise RuntimeError("a bug")

    log.wait = breaks if reason == "exhausted" else WAITS["signal"]
    async with stage(log.order, flow_clog(parent, "parent")) as w:
        if reason == "parent":
            await start(w, clog_id="parent")
        else:
            deadline_at = w.clock.now() + 1_000 if reason == "deadline" else None
            run_id = await start(w, deadline_at=deadline_at, retry=RetryPolicy(max_attempts=1))
        await w.drain()
        if reason == "cancel":
            await w.ocean.cancel_run(run_id)
        await w.wait(2_000)
        code = {"deadline": "deadline_exceeded", "exhausted": "exception"}.get(reason, "cancelled")
        if reason == "exhausted":
            assert log.caught == [], "the error left the function where it was raised"
            assert log.effects.done == ["paid", "told"]
        else:
            assert set(log.caught) == {(reason, code)}
            assert log.effects.done == ["paid", "refunded paid", "told"]


async def test_a_flow_that_ran_out_of_attempts_while_it_waited_is_told_so() -> None:
    log = Log(lambda flow: flow.sleep(100))

    async def crash(flow: Flow, input: Any) -> Any:
        raise RuntimeError("out of attempts")

    async with stage(log.order) as w:
        await start(w, retry=RetryPolicy(max_attempts=1))
        await w.drain()
        w.clock.advance(100)
        await (await w.instance([flow_clog(crash)])).advance(max_ticks=1)
        await w.wait(2_000)
        assert set(log.caught) == {("exhausted", "exception")}
        assert log.effects.done == ["paid", "refunded paid", "told"]


async def test_no_except_exception_swallows_it() -> None:
    seen: list[str] = []

    async def order(flow: Flow, input: Any) -> Any:
        for n in range(3):
            try:
                await flow.wait_for_signal(timeout_ms=1_000)
            except SignalTimeout:
                seen.append(f"time {n}")
            except Exception as error:
                seen.append(repr(error))

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(60_000)
        assert seen == []
        assert (await w.ocean.list_runs(parent_run_id=run_id)).runs == (), "nothing was left to do"


@pytest.mark.parametrize("how", ["raises", "returns", "fails"])
async def test_steps_are_undone_after_the_handlers_however_the_function_is_left(how: str) -> None:
    effects = Effects()

    async def undo(key: str, result: Any) -> None:
        effects.done.append(f"no {result}")

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=undo)
        try:
            await flow.wait_for_signal()
        except Cancelled:
            await flow.step("b", effects.do, "b", undo=undo)
            if how == "returns":
                return "all is well"
            if how == "fails":
                raise Abort("the handler gave up", code="gave_up") from None
            raise

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert effects.done == ["a", "b", "no b", "no a"]
        cleaning = await look(w, await undo_run(w, run_id))
        if how == "fails":
            assert (cleaning.error or {})["code"] == "gave_up"
        else:
            assert cleaning.output == {"undone": ["b", "a"]}


async def test_a_handler_with_a_bug_is_tried_again_and_then_the_steps_are_undone_without_it() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=effects.do)
        try:
            await flow.wait_for_signal()
        finally:
            await flow.step("b", effects.do, "b")
            raise RuntimeError("a bug")

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        effects.done.clear()
        await w.ocean.cancel_run(run_id)
        await w.wait(600_000)
        assert effects.done == ["b", "a"]
        cleaning = await undo_run(w, run_id)
        error = (await look(w, cleaning)).error or {}
        assert (error["code"], error["message"]) == ("exception", "RuntimeError: a bug")
        assert [type for type, _ in await events_of(w, cleaning, "flow.clean_up_failed", "flow.undone")] == [
            "flow.clean_up_failed",
            "flow.undone",
        ]


async def test_each_branch_of_a_gather_is_cancelled_once_and_cleans_up_for_itself() -> None:
    effects, after = Effects(), []

    async def line(flow: Flow, name: str, ms: int) -> str:
        try:
            await flow.sleep(ms)
            return name
        except Cancelled:
            await flow.gather(flow.sleep(ms), flow.step("clean", effects.do, f"{name} cleaned"))
            return f"{name} swallowed it"

    async def order(flow: Flow, input: Any) -> Any:
        try:
            await flow.gather(line(flow, "quick", 10), line(flow, "slow", 1_000), line(flow, "late", 2_000))
        except Cancelled:
            after.append("gather")
            await flow.step("last", effects.do, "last")
            raise

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(10)
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert sorted(effects.done) == ["late cleaned", "slow cleaned"]
        await w.wait(2_000)
        assert effects.done[-1] == "last"
        assert (await look(w, await undo_run(w, run_id))).status is RunStatus.DONE


async def at_work(w: World, effects: Effects, **options: Any) -> str:
    """Start a run and cancel it while its first or second step is at work."""
    run_id = await start(w, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(w.drain)
        await until(lambda: effects.done[-1:] == ["hangs"])
        await w.ocean.cancel_run(run_id)
        tasks.cancel_scope.cancel()
    await w.drain()
    return run_id


@pytest.mark.parametrize("steps_before", [0, 1])
async def test_a_step_at_work_in_a_first_tick_is_cancelled_there(steps_before: int) -> None:
    effects = Effects()

    async def hangs(key: str) -> None:
        await effects.do(key, "hangs")
        await anyio.sleep_forever()

    async def order(flow: Flow, input: Any) -> Any:
        for _ in range(steps_before):
            await flow.step("before", effects.do, input)
        try:
            await flow.step("hangs", hangs)
        except Cancelled:
            await flow.step("clean", effects.do, "cleaned")
            raise

    async with stage(order) as w:
        await at_work(w, effects, input="before")
        assert effects.done == ["before"] * steps_before + ["hangs", "cleaned"]


async def test_a_run_that_was_never_called_has_nothing_to_clean_up() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        try:
            await flow.wait_for_signal()
        finally:
            await flow.step("clean", effects.do, "cleaned")

    async with stage(order) as w:
        run_id = await start(w)
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert (effects.done, (await w.ocean.list_runs(parent_run_id=run_id)).runs) == ([], ())


async def test_the_run_that_cleans_up_can_be_cancelled_too() -> None:
    log = Log()
    async with stage(log.order) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        cleaning = await undo_run(w, run_id)
        await w.ocean.cancel_run(cleaning)
        await w.wait(10_000)
        assert log.effects.done == ["paid", "refunded paid"]
        assert await events_of(w, cleaning, "flow.undo_stopped") == [("flow.undo_stopped", {"steps": []})]


async def test_a_patch_and_ids_after_cancelled_are_stable() -> None:
    seen: list[Any] = []

    async def order(flow: Flow, input: Any) -> Any:
        try:
            await flow.sleep(60_000)
        finally:
            is_new, ids = flow.patched("new"), [await flow.uuid(), await flow.random(), await flow.now()]
            await flow.sleep(100)
            seen.append((is_new, ids))
            await flow.sleep(100)

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(1_000)
        assert len({str(each) for each in seen}) == 1
        assert seen[0][0] is True


async def test_a_handler_can_join_its_own_children_and_not_those_of_the_ended_run() -> None:
    effects, caught = Effects(), []

    async def order(flow: Flow, input: Any) -> Any:
        before = await flow.start("kid")
        try:
            await flow.join(before)
        except Cancelled:
            try:
                await flow.join(before)
            except ChildFailed as failed:
                caught.append(failed.error["code"])
            await flow.step("do", effects.do, await flow.child("quick", 3))
            raise

    async def quick(flow: Flow, n: int) -> int:
        await flow.sleep(10)
        return n + 1

    async with stage(order, flow_clog(kid, "kid"), flow_clog(quick, "quick")) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(1_000)
        assert (set(caught), effects.done) == ({"parent_ended"}, [4])
        assert (await look(w, await undo_run(w, run_id))).status is RunStatus.DONE
