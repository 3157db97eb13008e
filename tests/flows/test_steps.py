"""Steps: results are stored, failures are retried by the step's own policy, and the final error can be caught."""

from typing import Any

import anyio
import pytest

from ocean import Abort, Clog, Done, Flow, FlowMisused, InvalidValue, RetryPolicy, RunStatus, StepFailed, StoreBusy
from ocean.testing import world
from tests.errors import bare
from tests.flows.kit import Effects, events_of, flow_clog, journal, look, stage, start

pytestmark = pytest.mark.anyio


async def test_a_flow_runs_its_steps_in_order_and_its_result_is_the_output() -> None:
    effects = Effects()

    async def order(flow: Flow, input: Any) -> Any:
        first = await flow.step("reserve", effects.do, input["item"])
        return [first, await flow.step("charge", effects.do, 40)]

    async with stage(order) as w:
        run_id = await start(w, {"item": "book"})
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.output, info.tick) == (RunStatus.DONE, ["book", 40], 1)
        assert effects.done == ["book", 40]
        assert effects.keys == [f"{run_id}:1/reserve", f"{run_id}:1/charge"]
        assert await events_of(w, run_id) == [
            ("flow.step", {"step": "reserve", "attempts": 1}),
            ("flow.step", {"step": "charge", "attempts": 1}),
        ]


async def test_a_name_in_a_loop_is_numbered() -> None:
    effects = Effects()

    async def pages(flow: Flow, input: Any) -> Any:
        return [await flow.step("fetch", effects.do, page) for page in range(3)]

    async with stage(pages) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == [0, 1, 2]
        assert [key.partition("/")[2] for key in effects.keys] == ["fetch", "fetch%232", "fetch%233"]


@pytest.mark.parametrize("value", [0, False, None, "", [], {}, 0.0])
async def test_a_result_is_stored_unchanged(value: Any) -> None:
    async def order(flow: Flow, input: Any) -> Any:
        result = await flow.step("answer", Effects().do, value)
        await flow.sleep(10)
        return [result]

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(10)
        assert repr((await look(w, run_id)).output) == repr([value])


async def test_plain_functions_are_steps_too() -> None:
    def add(key: str, one: int, other: int) -> int:
        return one + other

    async def sums(flow: Flow, input: Any) -> Any:
        return await flow.step("add", add, 1, 2)

    async with stage(sums) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == 3


async def test_after_a_failed_call_the_stored_steps_are_not_repeated() -> None:
    effects, breaks = Effects(), [True, True]

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("charge", effects.do, "charged")
        if breaks and breaks.pop():
            raise RuntimeError("a bug after the charge")
        return "fine"

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(10_000)
        assert (await look(w, run_id)).output == "fine"
        assert effects.done == ["charged"]


async def test_another_instance_continues_after_the_last_stored_step_of_a_frozen_one() -> None:
    effects, stuck = Effects(), anyio.Event()

    async def hang_once(key: str) -> str:
        if not stuck.is_set():
            stuck.set()
            await anyio.sleep_forever()
        return "woke"

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("charge", effects.do, "charged")
        return await flow.step("hang", hang_once)

    async with stage(order) as w, anyio.create_task_group() as tasks:
        run_id = await start(w)
        tasks.start_soon(w.drain)
        await stuck.wait()
        w.clock.jump(30_000)
        await w.drain(await w.instance([flow_clog(order)]))
        assert (await look(w, run_id)).output == "woke"
        assert effects.done == ["charged"]
        tasks.cancel_scope.cancel()


async def test_a_step_that_fails_waits_durably_and_is_tried_again_under_the_same_key() -> None:
    effects = Effects()
    work = effects.failing(2)

    async def order(flow: Flow, input: Any) -> Any:
        return await flow.step("send", work, retry=RetryPolicy(max_attempts=5, delays_ms=(1_000, 60_000)))

    async with stage(order) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=1))
        began = w.clock.now()
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.attempt, info.wake_at) == (RunStatus.WAITING, 0, began + 1_000)
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert f"step 'send', which is retried at {began + 1_000} after 'OSError: line down' at " in hold.message
        assert hold.message.endswith(" in work")
        await w.wait(1_000)
        assert (await look(w, run_id)).wake_at == began + 61_000
        await w.wait(60_000)
        assert (await look(w, run_id)).output == "through at 3"
        assert len(effects.keys) == 3
        assert len(set(effects.keys)) == 1
        error = {"code": "exception", "message": "OSError: line down", "details": None}
        seen = await events_of(w, run_id)
        assert all(payload["error"].pop("where")["function"] == "work" for _, payload in seen if "error" in payload)
        assert seen == [
            ("flow.step_retrying", {"step": "send", "attempt": 1, "error": error, "next_at": began + 1_000}),
            ("flow.step_retrying", {"step": "send", "attempt": 2, "error": error, "next_at": began + 61_000}),
            ("flow.step", {"step": "send", "attempts": 3}),
        ]


async def test_a_signal_does_not_bring_the_next_attempt_forward() -> None:
    effects = Effects()
    work = effects.failing(1)

    async def order(flow: Flow, input: Any) -> Any:
        return await flow.step("send", work)

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id, "hurry")
        await w.drain()
        assert len(effects.keys) == 1
        await w.wait(1_000)
        assert (await look(w, run_id)).output == "through at 2"


async def test_after_the_last_attempt_the_flow_can_catch_the_error_and_catches_the_same_when_resumed() -> None:
    effects = Effects()
    work = effects.failing(9)
    caught: list[tuple[Any, ...]] = []

    async def order(flow: Flow, input: Any) -> Any:
        try:
            await flow.step("send", work, retry=RetryPolicy(max_attempts=2, backoff_ms=0))
        except StepFailed as failed:
            caught.append((failed.step, failed.attempts, failed.error["message"], str(failed)))
        await flow.sleep(1_000)
        return "went on"

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(1_000)
        assert (await look(w, run_id)).output == "went on"
        assert caught == [("send", 2, "OSError: line down", "step 'send' failed 2 times: OSError: line down")] * 2
        assert ("flow.step_failed", 2) in [(type, found.get("attempt")) for type, found in await events_of(w, run_id)]


async def test_a_step_that_has_failed_finally_stays_failed_whatever_breaks_after_it() -> None:
    effects, breaks = Effects(), [True]
    first = effects.failing(1)

    async def pay(flow: Flow, input: Any) -> Any:
        try:
            return await flow.step("one card", first, retry=RetryPolicy(max_attempts=1))
        except StepFailed:
            await flow.step("other card", effects.do, "other card")
        if breaks and breaks.pop():
            raise RuntimeError("a bug after the other card")
        return "paid"

    async with stage(pay) as w:
        run_id = await start(w)
        await w.wait(10_000)
        assert (await look(w, run_id)).output == "paid"
        assert effects.done == ["other card"]


async def test_an_uncaught_step_failed_ends_the_run_without_another_attempt() -> None:
    effects = Effects()
    work = effects.failing(9)

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("send", work, retry=RetryPolicy(max_attempts=1))

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(100_000)
        info = await look(w, run_id)
        assert info.status is RunStatus.FAILED
        assert info.error is not None
        assert (info.error["code"], info.error["details"]["step"]) == ("step_failed", "send")
        assert len(effects.keys) == 1


async def test_attempts_end_with_the_time_that_the_policy_allows() -> None:
    effects = Effects()
    work = effects.failing(99)

    async def order(flow: Flow, input: Any) -> Any:
        policy = RetryPolicy(max_attempts=None, delays_ms=(1_000,), max_elapsed_ms=2_500)
        await flow.step("send", work, retry=policy)

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(10_000)
        assert (await look(w, run_id)).status is RunStatus.FAILED
        assert len(effects.keys) == 4


async def test_abort_in_a_step_is_not_tried_again_and_is_the_runs_error() -> None:
    calls: list[str] = []

    async def refuse(key: str) -> None:
        calls.append(key)
        raise Abort("no such card", code="bad_card", details={"card": 7})

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("charge", refuse)

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(10_000)
        assert len(calls) == 1
        error = bare((await look(w, run_id)).error)
        assert error == {"code": "bad_card", "message": "no such card", "details": {"card": 7}}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({1, 2}, "must be JSON, got a value of type set"),
        ("x" * 300_000, "at most 262144 bytes of JSON, got 300002: store it elsewhere"),
    ],
)
async def test_a_result_that_cannot_be_stored_fails_the_step_at_once(result: Any, words: str) -> None:
    calls: list[str] = []

    async def work(key: str) -> Any:
        calls.append(key)
        return result

    async def order(flow: Flow, input: Any) -> Any:
        await flow.step("work", work)

    async with stage(order) as w:
        run_id = await start(w)
        await w.wait(10_000)
        error = (await look(w, run_id)).error
        assert error is not None
        assert words in error["message"]
        assert len(calls) == 1


async def test_operations_inside_a_step_are_refused_by_name() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        async def nested(key: str) -> None:
            await flow.sleep(1)

        try:
            await flow.step("outer", nested)
        except StepFailed as failed:
            return failed.error

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        output = (await look(w, run_id)).output
        assert output["code"] == FlowMisused.code
        assert "flow.sleep must not be called inside step 'outer'" in output["message"]


async def test_a_step_may_stream_and_what_it_returned_cannot_be_changed_behind_the_journal() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        async def think(key: str) -> list[int]:
            await flow.stream("token", "hm")
            return [1]

        answer = await flow.step("think", think)
        answer.append(2)
        input["touched"] = True
        await flow.sleep(10)
        return answer

    async with stage(order) as w:
        run_id = await start(w, {})
        await w.drain()
        assert await events_of(w, run_id, "token") == [("token", "hm")]
        kept = await journal(w, run_id)
        assert (kept["entries"]["0"]["value"], kept["input"]) == ([1], {})
        await w.wait(10)
        assert (await look(w, run_id)).output == [1, 2]


@pytest.mark.sqlite
@pytest.mark.parametrize("name", ["", "a#2", "a@1", "a/b", "x" * 81, 7])
async def test_a_name_that_could_be_mistaken_is_refused(name: Any) -> None:
    async def order(flow: Flow, input: Any) -> Any:
        try:
            await flow.step(name, Effects().do, 1)
        except InvalidValue as error:
            return str(error)

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        assert "a name in a flow" in (await look(w, run_id)).output


async def test_many_steps_are_committed_in_batches_and_a_long_tick_ends_early() -> None:
    effects = Effects()

    async def many(flow: Flow, input: Any) -> Any:
        for n in range(70):
            await flow.step("n", effects.do, n)
        return len(effects.done)

    async with stage(many) as w:
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert (info.output, info.tick) == (70, 3)


async def test_no_step_begins_in_the_second_half_of_a_ticks_time() -> None:
    clocks: list[Any] = []

    async def work(key: str) -> None:
        clocks[0].advance(40_000)

    async def slow(flow: Flow, input: Any) -> Any:
        for _ in range(6):
            await flow.step("work", work)
        return "done"

    async with world(clogs=[flow_clog(slow, tick_ms=100_000)]) as w:
        clocks.append(w.clock)
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert (info.output, info.attempt, info.tick) == ("done", 0, 3)


@pytest.mark.sqlite
async def test_an_invalid_flow_is_refused_when_it_is_registered() -> None:
    def plain(flow: Flow, input: Any) -> Any:
        return None

    async def fine(flow: Flow, input: Any) -> Any:
        return None

    with pytest.raises(InvalidValue, match="a flow must be an async function"):
        Clog("f").flow(plain)
    from pydantic import BaseModel

    with pytest.raises(InvalidValue, match="the run row of a flow is its journal"):
        Clog("f", run_state=BaseModel).flow(fine)
    with pytest.raises(InvalidValue, match=r"must include ocean\.storage\.write_scoped"):
        Clog("f", tools=["ocean.storage.read_scoped"]).flow(fine)
    clog = Clog("f")
    clog.flow(fine)
    with pytest.raises(InvalidValue, match="must have one on_advance handler"):
        clog.flow(fine)


@pytest.mark.sqlite
async def test_a_method_that_overwrites_the_journal_is_named() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        await flow.wait_for_signal()

    clog = flow_clog(order)

    @clog.method
    async def spoil(tick: Any, payload: Any) -> None:
        await tick.read(run=True)
        await tick.write(run={"mine": 1})

    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.call_clog(run_id=run_id, method="spoil")
        await w.ocean.signal(run_id)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert "the run row of a flow must be its journal" in error["message"]
        await w.wait(100_000)
        assert (await look(w, run_id)).status is RunStatus.FAILED


async def test_a_failure_of_the_database_does_not_count_as_an_attempt_of_the_step() -> None:
    calls: list[str] = []

    async def work(key: str) -> str:
        calls.append(key)
        if len(calls) == 1:
            raise StoreBusy("the server is away")
        return "through"

    async def order(flow: Flow, input: Any) -> Any:
        try:
            return await flow.step("work", work, retry=RetryPolicy(max_attempts=1))
        except StepFailed:
            return "taken for a failure"

    async with stage(order) as w:
        run_id = await start(w)
        with pytest.raises(StoreBusy):
            await w.drain()
        await w.drain()
        info = await look(w, run_id)
        assert (info.output, info.attempt) == ("through", 0)


@pytest.mark.sqlite
async def test_a_flow_must_not_return_an_outcome() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        return Done(1)

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert "a flow must return the output of the run, or raise Abort, got Done(output=1)" in error["message"]


async def test_a_flow_may_await_what_is_not_an_operation() -> None:
    async def order(flow: Flow, input: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return "fine"

    async with stage(order) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == "fine"
