"""A flow that fails is undone, the last step first: in its own run, or in another if the kernel has ended it."""

from typing import Any

import anyio
import pytest

from ocean import Abort, Flow, RetryPolicy, RunStatus, StepFailed
from ocean.testing import World
from tests.errors import bare
from tests.flows.kit import Effects, Function, events_of, flow_clog, look, stage, start

pytestmark = pytest.mark.anyio


class Trip:
    """Three bookings; `then` decides how the flow continues after them."""

    def __init__(self, then: Any = None) -> None:
        self.effects = Effects()
        self.then = then
        self.broken_undos: dict[str, int] = {}

    async def undo(self, key: str, booked: Any) -> Any:
        self.effects.keys.append(key)
        if self.broken_undos.get(booked, 0) > 0:
            self.broken_undos[booked] -= 1
            raise OSError("the desk is closed")
        self.effects.done.append(f"no {booked}")
        return booked

    async def book(self, flow: Flow, input: Any) -> Any:
        for what in ("flight", "hotel"):
            await flow.step(f"book {what}", self.effects.do, what, undo=self.undo)
        await flow.step("look", self.effects.do, "look")
        return await self.then(flow)


async def fails(flow: Flow) -> None:
    raise Abort("no car left", code="no_car")


async def waits(flow: Flow) -> None:
    await flow.wait_for_signal()


async def undo_run(w: World, run_id: str) -> str:
    (child,) = (await w.ocean.list_runs(parent_run_id=run_id, clog_id="f")).runs
    return child.run_id


async def test_a_flow_that_fails_is_undone_in_reverse_and_ends_with_its_own_error() -> None:
    trip = Trip(fails)
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, bare(info.error)) == (
            RunStatus.FAILED,
            {"code": "no_car", "message": "no car left", "details": None},
        )
        assert trip.effects.done == ["flight", "hotel", "look", "no hotel", "no flight"]
        assert [(type, found.get("step") or found.get("steps")) for type, found in await events_of(w, run_id)][3:] == [
            ("flow.undoing", ["book hotel", "book flight"]),
            ("flow.undone", "book hotel"),
            ("flow.undone", "book flight"),
        ]
        assert len(set(trip.effects.keys)) == 5


async def test_a_step_that_failed_finally_may_have_happened_and_is_undone_too() -> None:
    effects = Effects()

    async def undo(key: str, result: Any) -> None:
        effects.done.append(f"no {result}")

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=undo)
        await flow.step("b", effects.failing(9), undo=undo, retry=RetryPolicy(max_attempts=1))

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "step_failed"
        assert effects.done == ["a", "no UNKNOWN", "no a"]


async def test_a_flow_that_catches_its_failure_is_not_undone() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=effects.do)
        try:
            await flow.step("b", effects.failing(9), retry=RetryPolicy(max_attempts=1))
        except StepFailed:
            return "did without b"

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == "did without b"
        assert effects.done == ["a"]


async def test_an_undo_that_fails_waits_durably_and_is_tried_again_before_the_next() -> None:
    trip = Trip(fails)
    trip.broken_undos = {"hotel": 2}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.wake_at) == (RunStatus.WAITING, w.clock.now() + 1_000)
        assert trip.effects.done[3:] == []
        await w.wait(3_000)
        assert trip.effects.done[3:] == ["no hotel", "no flight"]
        assert (await look(w, run_id)).status is RunStatus.FAILED


async def test_an_undo_that_fails_finally_is_reported_and_the_others_are_undone() -> None:
    trip = Trip(fails)
    trip.broken_undos = {"hotel": 99}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.wait(3_600_000)
        assert trip.effects.done[3:] == ["no flight"]
        ((_, found),) = await events_of(w, run_id, "flow.undo_failed")
        assert (found["step"], found["attempt"]) == ("book hotel", 10)
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "no_car"
        assert error["message"] == "no car left; 1 of 2 steps could not be undone: book hotel"


@pytest.mark.parametrize("how", ["cancel", "deadline", "exhausted"])
async def test_a_flow_that_the_kernel_ends_is_undone_by_a_separate_run(how: str) -> None:
    async def breaks(flow: Flow) -> None:
        raise RuntimeError("a bug")

    trip = Trip(breaks if how == "exhausted" else waits)
    trip.broken_undos = {"hotel": 1}
    async with stage(trip.book) as w:
        run_id = await start(w, deadline_at=w.clock.now() + 60_000 if how == "deadline" else None)
        await w.drain()
        if how == "cancel":
            await w.ocean.cancel_run(run_id)
        await w.wait(70_000)
        info = await look(w, run_id)
        assert info.status is RunStatus.FAILED
        assert trip.effects.done == ["flight", "hotel", "look", "no hotel", "no flight"]
        undoing = await undo_run(w, run_id)
        assert (await look(w, undoing)).output == {"undone": ["book hotel", "book flight"]}
        ((_, found),) = await events_of(w, run_id, "flow.undoing")
        assert (found["run_id"], found["steps"]) == (undoing, ["book hotel", "book flight"])
        assert [type for type, _ in await events_of(w, undoing)] == [
            "flow.undo_retrying",
            "flow.undone",
            "flow.undone",
        ]
        code = {"cancel": "cancelled", "deadline": "deadline_exceeded", "exhausted": "exception"}[how]
        assert (info.error or {})["code"] == found["error"]["code"] == code


async def test_a_step_stored_in_a_tick_that_never_committed_is_undone_too() -> None:
    trip = Trip(waits)
    held = anyio.Event()

    async def stuck(flow: Flow) -> None:
        async def hang(key: str) -> None:
            held.set()
            await anyio.sleep_forever()

        await flow.step("hang", hang)

    trip.then = stuck
    async with stage(trip.book) as w, anyio.create_task_group() as tasks:
        run_id = await start(w)
        tasks.start_soon(w.drain)
        await held.wait()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert trip.effects.done == ["flight", "hotel", "look", "no hotel", "no flight"]
        tasks.cancel_scope.cancel()


async def test_what_was_undone_in_a_tick_that_never_committed_is_not_undone_twice() -> None:
    effects, held = Effects(), anyio.Event()

    async def undo(key: str, booked: Any) -> None:
        if booked == "a" and not held.is_set():
            held.set()
            await anyio.sleep_forever()
        effects.done.append(f"no {booked}")

    async def order(flow: Flow, input: Any) -> Any:
        for name in ("a", "b"):
            await flow.step(name, effects.do, name, undo=undo)
        raise Abort("after all")

    async with stage(order) as w, anyio.create_task_group() as tasks:
        run_id = await start(w)
        tasks.start_soon(w.drain)
        await held.wait()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert effects.done == ["a", "b", "no b", "no a"]
        assert (await look(w, await undo_run(w, run_id))).output == {"undone": ["b", "a"]}
        tasks.cancel_scope.cancel()


async def test_a_step_behind_a_sleep_is_undone_although_its_tick_never_committed() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.sleep(1_000)
        await flow.step("a", effects.do, "a", undo=effects.do)
        raise RuntimeError("a bug")

    async with stage(order) as w:
        await start(w)
        await w.wait(60_000)
        assert effects.done == ["a", "a"]


async def test_what_the_flow_was_waiting_for_does_not_wake_its_undoing() -> None:
    trip = Trip(lambda flow: flow.sleep(500))
    trip.broken_undos = {"hotel": 1}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(900)
        undoing = await undo_run(w, run_id)
        assert (await look(w, undoing)).tick == 1
        await w.wait(100)
        assert (await look(w, undoing)).tick == 2


async def test_a_flow_cancelled_while_it_undoes_is_undone_to_the_end_and_nothing_twice() -> None:
    trip = Trip(fails)
    trip.broken_undos = {"flight": 1}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        assert trip.effects.done[3:] == ["no hotel"]
        await w.ocean.cancel_run(run_id)
        await w.wait(10_000)
        assert trip.effects.done[3:] == ["no hotel", "no flight"]


async def test_a_cancelled_undo_run_lists_the_steps_it_leaves() -> None:
    trip = Trip(waits)
    trip.broken_undos = {"hotel": 99}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        undoing = await undo_run(w, run_id)
        await w.ocean.cancel_run(undoing)
        await w.wait(100_000)
        assert await events_of(w, undoing, "flow.undo_stopped") == [
            ("flow.undo_stopped", {"steps": ["book hotel", "book flight"]})
        ]
        assert trip.effects.done[3:] == []


async def test_an_undo_run_whose_steps_cannot_be_undone_fails_and_names_them() -> None:
    trip = Trip(waits)
    trip.broken_undos = {"hotel": 99}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(3_600_000)
        error = (await look(w, await undo_run(w, run_id))).error
        assert error == {
            "code": "undo_failed",
            "message": "1 of 2 steps could not be undone: book hotel",
            "details": {"steps": ["book hotel"]},
        }


async def test_an_undo_run_that_failed_is_retried_as_new_with_what_is_left() -> None:
    trip = Trip(waits)
    trip.broken_undos = {"hotel": 10}
    async with stage(trip.book) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.wait(3_600_000)
        retried = await w.ocean.retry_run(await undo_run(w, run_id))
        await w.drain()
        assert (await look(w, retried.run_id)).output == {"undone": ["book flight", "book hotel"]}
        assert trip.effects.done == ["flight", "hotel", "look", "no flight", "no hotel"]


async def test_undoing_is_held_while_the_code_has_no_undo() -> None:
    effects = Effects()

    def order(names: tuple[str, ...], has_undo: bool) -> Function:
        async def function(flow: Flow, input: Any) -> Any:
            for name in names:
                await flow.step(name, effects.do, name, undo=effects.do if has_undo else None)
            await flow.wait_for_signal()

        return function

    async with stage(order(("a",), True)) as w:
        run_id = await start(w)
        await w.drain()
        for names, has_undo in ((("b",), True), (("a",), False)):
            other = await w.instance([flow_clog(order(names, has_undo))])
            if names == ("b",):
                await w.ocean.cancel_run(run_id)
            else:
                w.clock.advance(300_000)
            await w.drain(other)
        undoing = await undo_run(w, run_id)
        found = [held["details"]["asked"] for _, held in await events_of(w, undoing, "flow.held")]
        assert found == ["step 'b'", "no undo"]
        assert effects.done == ["a"]
        await w.wait(300_000)
        assert effects.done == ["a", "a"]
        assert (await look(w, undoing)).output == {"undone": ["a"]}


async def test_steps_of_a_gather_are_undone_in_the_reverse_order_of_their_completion() -> None:
    effects = Effects()

    async def line(flow: Flow, name: str, ms: int) -> None:
        await flow.sleep(ms)
        await flow.step("do", effects.do, name, undo=effects.do)

    async def order(flow: Flow, input: Any) -> Any:
        await flow.gather(line(flow, "slow", 2_000), line(flow, "quick", 1_000))
        raise Abort("after all")

    async with stage(order) as w:
        await start(w)
        await w.wait(2_000)
        assert effects.done == ["quick", "slow", "slow", "quick"]


async def test_a_step_may_have_any_name_even_one_that_looks_like_an_undo() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=lambda key, result: effects.do(key, "no a"))
        await flow.step("undo a", effects.do, "not an undoing")
        raise Abort("after all")

    async with stage(order) as w:
        await start(w)
        await w.drain()
        assert effects.done == ["a", "not an undoing", "no a"]


async def test_the_run_that_undoes_has_the_keys_and_attributes_of_the_one_it_undoes() -> None:
    trip = Trip(waits)
    async with stage(trip.book) as w:
        run_id = await start(w, attributes={"who": "ada"}, concurrency_keys=["account:ada"], priority=2)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        info = await look(w, await undo_run(w, run_id))
        assert (info.attributes, info.priority) == ({"who": "ada"}, 2)
        assert [key.name for key in info.concurrency_keys] == ["account:ada"]


async def test_an_error_that_is_not_json_does_not_prevent_undoing() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", effects.do, "a", undo=effects.do)
        raise Abort("odd", details={1, 2})

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        assert effects.done == ["a", "a"]
        assert (await look(w, run_id)).status is RunStatus.FAILED


async def test_what_was_done_before_again_is_not_undone() -> None:
    effects = Effects()

    async def order(flow: Flow, n: int) -> Any:
        await flow.step("month", effects.do, n, undo=effects.do)
        if n == 2:
            raise Abort("closed")
        return flow.again(n + 1)

    async with stage(order) as w:
        await start(w, 0)
        await w.drain()
        assert effects.done == [0, 1, 2, 2]


async def test_an_input_that_only_looks_like_an_undo_is_an_input() -> None:
    async def echo(flow: Flow, input: Any) -> Any:
        return input

    async with stage(echo) as w:
        forged = {"ocean.flow.undo_of": "somebody's"}
        run_id = await start(w, forged)
        await w.drain()
        assert (await look(w, run_id)).output == forged


async def test_a_retried_run_with_such_an_input_is_no_undo_run_either() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("a", Effects().do, "a", undo=Effects().do)
        raise Abort(input["ocean.flow.undo_of"])

    async with stage(order) as w:
        run_id = await start(w, {"ocean.flow.undo_of": "somebody's"})
        await w.drain()
        retried = await w.ocean.retry_run(run_id)
        await w.drain()
        assert ("flow.step", {"step": "a", "attempts": 1}) in await events_of(w, retried.run_id)
