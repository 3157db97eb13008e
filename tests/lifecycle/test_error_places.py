"""The place of an exception: kept with its attempt, shown by whatever shows the run's error."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import (
    Abort,
    Clog,
    CredentialRef,
    Done,
    Failed,
    Flow,
    Ok,
    Outcome,
    ResultTimeout,
    Retry,
    RetryPolicy,
    RunFailed,
    Tick,
    ToolBox,
    Wait,
)
from ocean.state.outcomes import place_text
from ocean.testing import RunStuck, world
from tests import failing
from tests.errors import bare
from tests.failing import NAME, charge, charge_later, line_of, place_in
from tests.flows.kit import events_of, flow_clog, journal
from tests.invariants import check
from tests.lifecycle.acting import Script, log, look, stage, start, types

pytestmark = pytest.mark.anyio

Act = Callable[[Tick], Awaitable[Outcome]]

CHARGE = (NAME, line_of("charge"), "charge")
SENTENCE = f"ValueError: no such card 4711, at {NAME}:{line_of('charge')} in charge"
ONCE = RetryPolicy(max_attempts=1)


async def directly(tick: Tick) -> Outcome:
    charge()


async def later(tick: Tick) -> Outcome:
    await charge_later()
    return Ok()


async def through_a_method(tick: Tick) -> Outcome:
    return Done(await tick.call("bank", "pay", None))


async def through_a_tool(tick: Tick) -> Outcome:
    return Done(await tick.tools.invoke("till.pay", {}))


async def through_nested_tools(tick: Tick) -> Outcome:
    return Done(await tick.call("bank", "pay_by_tool", None))


async def in_a_step(tick: Tick) -> Outcome:
    return Done(await tick.step("pay", lambda key: charge()))


async def while_it_writes(tick: Tick) -> Outcome:
    await tick.read(session=True)
    await tick.write(session=lambda row: charge())
    return Ok()


async def given_back(tick: Tick) -> Outcome:
    try:
        charge()
    except ValueError as error:
        return Retry(error)


def till() -> ToolBox:
    box = ToolBox("till")

    @box.tool(name="pay", description="Pay.")
    async def pay() -> None:
        await charge_later()

    return box


def bank() -> Clog:
    clog = Clog("bank", tools=["till.pay"])

    @clog.method
    def pay(tick: Tick, payload: Any) -> None:
        charge()

    @clog.method
    async def pay_by_tool(tick: Tick, payload: Any) -> None:
        await tick.tools.invoke("till.pay", {})

    return clog


@pytest.mark.parametrize(
    "act",
    [
        directly,
        later,
        through_a_method,
        through_a_tool,
        through_nested_tools,
        in_a_step,
        while_it_writes,
        given_back,
    ],
)
async def test_an_attempt_keeps_the_place_of_its_exception(act: Act) -> None:
    async with world([Script(act, toolbox=till()), bank()]) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert place_in(run.error) == CHARGE
        assert run.error["where"]["type"] == "ValueError"
        text = run.error["where"]["traceback"]
        assert text.startswith("Traceback (most recent call last):\n  File ")
        assert "no such card 4711" in text
        (failed,) = await log(w, run_id, "run.retrying")
        assert failed.payload["error"] == run.error
        await check(w)


async def test_a_plain_handler_in_its_thread_has_a_place_too() -> None:
    clog = Clog("c")

    @clog.on_advance
    def advance(tick: Tick) -> Outcome:
        charge()

    async with stage(clog) as w:
        run_id = await start(w, retry=ONCE)
        await w.drain()
        error = (await look(w, run_id)).error
        assert place_in(error) == CHARGE
        assert error is not None
        lines = error["where"]["traceback"].splitlines()
        assert "test_error_places.py" in lines[1], "what calls the author's code is left out"
        (failed,) = await log(w, run_id, "tick.failed")
        (ended,) = await log(w, run_id, "run.failed")
        assert failed.payload["error"] == ended.payload["error"] == error


async def test_abort_has_a_place_and_errors_that_a_handler_returns_have_none() -> None:
    async def abort(tick: Tick) -> Outcome:
        raise Abort("closed", code="closed")  # here

    for act, has_place in ((abort, True), (Failed("no"), False), (Failed(ValueError("never raised")), False)):
        async with stage(Script(act)) as w:
            run_id = await start(w)
            await w.drain()
            error = (await look(w, run_id)).error
            assert error is not None
            assert ("where" in error) is has_place
            assert place_text(error) is None or error["where"]["function"] == "abort"


async def test_what_a_tool_raises_has_its_place_but_not_its_credentials() -> None:
    box = ToolBox("mail")
    secret = "a-value-without-a-form"

    @box.tool(name="send", description="Send.", credentials=["smtp"])
    async def send(login: CredentialRef) -> None:
        failing.loud(f"refused {login.reveal()}")

    async def act(tick: Tick) -> Outcome:
        return Done(await tick.tools.invoke("mail.send", {"login": "smtp"}))

    async with world([Script(act, toolbox=box)], credentials={"smtp": secret}) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["where"]["function"] == "loud"
        assert "refused [credential smtp]" in error["where"]["traceback"]
        assert secret not in str(await log(w))


async def test_an_error_that_cannot_be_shown_fails_the_attempt_all_the_same() -> None:
    async def speechless(tick: Tick) -> Outcome:
        raise failing.Speechless

    async def odd(tick: Tick) -> Outcome:
        error = ValueError("a\x00b\ud800")
        error.details = {1: object()}  # type: ignore[attr-defined]
        raise error

    async def deep(tick: Tick) -> Outcome:
        failing.ping()
        return Ok()

    async with stage(Script(speechless, odd, deep)) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=3, delays_ms=(0,)))
        await w.drain()
        assert (await types(w, run_id))[-3:] == ["tick.failed", "signal.undelivered", "run.failed"]
        first, second, third = [e.payload["error"] for e in await log(w, run_id) if "wake_at" in e.payload] + [
            (await look(w, run_id)).error
        ]
        assert first["message"] == "Speechless: (its text raised RuntimeError)"
        assert second["message"] == "ValueError: a\\0b?"
        assert third["message"].startswith("RecursionError: ")
        assert all(each["where"]["file"] for each in (first, second, third))


async def test_a_parent_gets_the_place_of_its_childs_error_without_the_traceback() -> None:
    ends: list[Any] = []
    details = {"z": 1.0, "a": [1, 10**15], "ä": "é\u2028"}

    async def child(tick: Tick) -> Outcome:
        try:
            charge()
        except ValueError as error:
            error.details = details  # type: ignore[attr-defined]
            raise

    async def parent(tick: Tick) -> Outcome:
        if tick.child is not None:
            ends.append(tick.child.error)
            return Failed(tick.child.error or "?")
        await tick.create_run(clog_id="child", input=1, notify_parent=True, retry=ONCE)
        return Ok()

    async with stage(Script(parent), Script(child, clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        (error,) = ends
        (child_run,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        own = (await look(w, child_run.run_id)).error
        assert own is not None
        assert "traceback" in own["where"]
        assert bare(error) == bare(own)
        assert list(error["details"]) == ["z", "a", "ä"]
        assert isinstance(error["details"]["z"], float)
        assert error["where"] == {name: own["where"][name] for name in ("type", "file", "line", "function")}
        assert (await look(w, run_id)).error == error


async def test_a_failed_run_raises_with_a_note_of_its_place_and_traceback() -> None:
    async with stage(Script(directly)) as w:
        run_id = await start(w, retry=ONCE)
        with pytest.raises(RunFailed) as failed:
            await w.ocean.result(run_id)
        (note,) = failed.value.__notes__
        assert note.startswith(f"raised at {NAME}:{line_of('charge')} in charge:\nTraceback (most recent call last):\n")
        assert note.endswith("ValueError: no such card 4711")
        assert failed.value.error["where"]["line"] == line_of("charge")
    async with stage(Script(Failed("no"))) as w:
        run_id = await start(w)
        with pytest.raises(RunFailed) as failed:
            await w.ocean.result(run_id)
        assert not hasattr(failed.value, "__notes__")


async def test_a_result_that_is_late_or_stuck_has_a_note_of_the_last_error() -> None:
    async with stage(Script(directly)) as w:
        run_id = await start(w)
        await w.drain()
        with pytest.raises(ResultTimeout) as late:
            await w.ocean.result(run_id, timeout_ms=0)
        assert late.value.__notes__[0].startswith(f"the last error: {SENTENCE}\nraised at ")
    async with world([Script(directly)]) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=2))
        await w.drain()
        await w.ocean.pause_run(run_id)
        with pytest.raises(RunStuck, match=f"the run is paused.*at {NAME}:{line_of('charge')} in charge") as stuck:
            await w.ocean.result(run_id)
        assert "Traceback" in stuck.value.__notes__[0]


async def test_explain_has_the_last_error_while_a_run_backs_off_and_when_it_has_failed() -> None:
    async with stage(Script(directly, Wait(for_ms=9), directly)) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=2))
        assert (await w.ocean.explain(run_id)).error is None
        for code, before in (("backing_off", "attempt 1 failed"), ("waiting", ""), ("backing_off", "attempt 1 failed")):
            await w.drain()
            explained = await w.ocean.explain(run_id)
            (hold,) = explained.holds
            assert hold.code == code
            assert hold.message.startswith(before)
            assert explained.error == (await look(w, run_id)).error
            assert (explained.error is None) is (code == "waiting")
            assert hold.message.endswith(f"; the last error: {SENTENCE}") is (code == "backing_off")
            w.clock.advance(1_000)
        await w.drain()
        explained = await w.ocean.explain(run_id)
        assert explained.holds[0].message == f"the run has ended (failed); the last error: {SENTENCE}"
        assert explained.error == (await look(w, run_id)).error
        assert explained.error is not None


async def test_a_list_of_runs_has_places_but_no_tracebacks() -> None:
    async with stage(Script(directly)) as w:
        run_id = await start(w)
        await w.drain()
        (listed,) = (await w.ocean.list_runs()).runs
        assert place_in(listed.error) == CHARGE
        assert "traceback" not in str(listed.error)
        assert bare(listed.error) == bare((await look(w, run_id)).error)


async def test_a_flow_fails_with_the_place_of_its_step() -> None:
    async def order(flow: Flow, input: Any) -> None:
        await flow.step("card", lambda key: charge(), retry=RetryPolicy(max_attempts=2, delays_ms=(10,)))

    async with world([flow_clog(order)]) as w:
        run_id = await start(w, clog_id="f")
        await w.drain()
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert f"after 'ValueError: no such card 4711' at {NAME}:{line_of('charge')} in charge" in hold.message
        with pytest.raises(RunFailed) as failed:
            await w.ocean.result(run_id)
        error = failed.value.error
        assert error["code"] == "step_failed"
        assert place_in(error) == CHARGE
        assert error["where"]["traceback"].endswith("ValueError: no such card 4711")
        assert place_in(error["details"]["error"]) == CHARGE
        assert "traceback" not in error["details"]["error"]["where"]
        for _, payload in await events_of(w, run_id, "flow.step_retrying", "flow.step_failed"):
            assert place_in(payload["error"]) == CHARGE
            assert "Traceback" in payload["error"]["where"]["traceback"]


async def test_abort_in_a_step_has_the_place_of_the_step() -> None:
    def closed(key: str) -> None:
        raise Abort("closed", code="closed")

    async def order(flow: Flow, input: Any) -> None:
        await flow.step("card", closed)

    async with world([flow_clog(order)]) as w:
        run_id = await start(w, clog_id="f")
        with pytest.raises(RunFailed) as failed:
            await w.ocean.result(run_id)
        assert failed.value.error["where"]["function"] == "closed"
        assert "in closed" in failed.value.error["where"]["traceback"]


async def test_a_journal_keeps_one_traceback_however_many_steps_fail() -> None:
    async def order(flow: Flow, input: Any) -> int:
        steps: list[Any] = [flow.step(f"card-{n}", lambda key: charge(), retry=ONCE) for n in range(20)]
        found = await flow.gather(*steps, return_exceptions=True)
        await flow.wait_for_signal("go")
        return len(found)

    async with world([flow_clog(order)]) as w:
        run_id = await start(w, clog_id="f")
        await w.drain()
        row = await journal(w, run_id)
        errors = [entry["error"] for entry in row["entries"].values() if "error" in entry]
        assert [place_in(error) for error in errors] == [CHARGE] * 20
        assert sum("traceback" in error["where"] for error in errors) == 1
        await w.ocean.signal(run_id, {"type": "go"})
        assert await w.ocean.result(run_id) == 20


async def test_a_flow_whose_child_fails_has_the_childs_place() -> None:
    async def order(flow: Flow, input: Any) -> None:
        await flow.child("c", retry=ONCE)

    async with world([flow_clog(order), Script(directly)]) as w:
        run_id = await start(w, clog_id="f")
        with pytest.raises(RunFailed) as failed:
            await w.ocean.result(run_id)
        assert failed.value.error["code"] == "child_failed"
        assert place_in(failed.value.error) == CHARGE
