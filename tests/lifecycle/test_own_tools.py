"""Authors' tools in ticks: stored, logged, limited in time, and not called by dry runs."""

from typing import Any

import anyio
import pytest

from ocean import (
    CallRefused,
    Clog,
    ClogError,
    CredentialRef,
    Done,
    Ok,
    Outcome,
    Refuse,
    Tick,
    ToolBox,
    ToolCall,
    ToolFailed,
    ToolResult,
)
from ocean.testing import Outside, World, crash_everywhere, world
from tests.invariants import check
from tests.lifecycle.acting import Script, dump, log, start
from tests.lifecycle.mailing import Mail, in_a_tick

pytestmark = pytest.mark.anyio


async def test_a_tool_is_invoked_by_its_name_and_by_the_models_name() -> None:
    mail = Mail()
    for name in ("mail.send", "mail__send"):
        output, (logged,) = await in_a_tick(lambda tick, name=name: tick.tools.invoke(name, {"to": "ada"}), mail)  # type: ignore[misc]
        assert output == f"sent {len(mail.sent)}"
        assert logged == {"tool": "mail.send", "outcome": "ok", "input": {"to": "ada"}, "ms": 0}
    assert [to for to, _ in mail.sent] == ["ada", "ada"]


async def test_an_external_effect_is_remembered_over_the_calls_of_its_tick() -> None:
    mail, results = Mail(), list[Any]()

    async def advance(tick: Tick) -> Outcome:
        for to in ("ada", "bob", "ada"):
            results.append(await tick.tools.invoke("mail.send", {"to": to}))
        if tick.call_number < 3:
            raise RuntimeError("after the mails have gone")
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        await w.wait(10_000)
        await check(w)
        events = await log(w, run_id, "tool.called")
    assert results == ["sent 1", "sent 2", "sent 3"] * 3, "the same call twice in a tick is two calls"
    assert [to for to, _ in mail.sent] == ["ada", "bob", "ada"]
    assert len({key for _, key in mail.sent}) == 3
    assert [(event.tick, event.call, event.clog_id) for event in events] == [(1, 1, "c")] * 3, "logged once, and kept"


async def test_calls_in_another_order_get_their_own_results() -> None:
    mail, results = Mail(), list[Any]()

    async def advance(tick: Tick) -> Outcome:
        order = ("ada", "bob") if tick.call_number == 1 else ("bob", "ada")
        results.append({to: await tick.tools.invoke("mail.send", {"to": to}) for to in order})
        if tick.call_number == 1:
            raise RuntimeError("again")
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        await start(w, {})
        await w.wait(10_000)
    assert results == [{"ada": "sent 1", "bob": "sent 2"}] * 2


async def test_a_tool_without_effect_is_called_again_unless_it_is_given_a_step() -> None:
    mail = Mail()

    async def advance(tick: Tick) -> Outcome:
        await tick.tools.invoke("mail.count", {"text": "one two"})
        await tick.tools.invoke("mail.count", {"text": "one"}, step="once")
        if tick.call_number == 1:
            raise RuntimeError("again")
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        await w.wait(10_000)
        events = await log(w, run_id, "tool.called")
    assert mail.counted == 3
    assert [event.payload["input"]["text"] for event in events] == ["one two", "one", "one two"]


async def test_a_crash_at_any_place_sends_each_mail_once() -> None:
    def clogs() -> list[Clog]:
        box = ToolBox("post")

        @box.tool
        async def send(to: str, call: ToolCall, stamp: CredentialRef = CredentialRef("stamp")) -> int:  # noqa: B008
            """Send a letter."""
            headers = {"Idempotency-Key": call.idempotency_key, "Stamp": stamp.reveal()}
            return (await call.fetch("https://post.example/", method="POST", headers=headers, body=to.encode())).status

        async def advance(tick: Tick) -> Outcome:
            first = await tick.tools.invoke("post.send", {"to": "ada"})
            second = await tick.tools.attempt("post.send", {"to": "bob"})
            return Done([first, second.output])

        return [Script(advance, toolbox=box)]

    def outside() -> Outside:
        made = Outside()
        made.answer("POST https://post.example/", {})
        return made

    async def scenario(w: World) -> Any:
        run_id = await start(w, {})
        await w.drain()
        return await w.ocean.result(run_id)

    report = await crash_everywhere(clogs, scenario, outside=outside, credentials={"stamp": "first class"})
    assert any("before tick.tools.invoke" in point.deed for point in report.killed)
    assert any("after tick.tools.attempt" in point.deed for point in report.killed)


FAILURES: dict[str, tuple[str, Any, str, str]] = {
    "a code of its own": ("mail.fail", {}, "mailbox_full", "the box is full"),
    "any exception": ("mail.break", {}, "tool_failed", "RuntimeError: no route to Bearer [redacted]"),
    "an output that is not JSON": (
        "mail.odd",
        {},
        "invalid_value",
        "its result.a must be JSON, got a value of type set",
    ),
}


@pytest.mark.parametrize(("name", "input", "code", "message"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_structured_and_logged(name: str, input: Any, code: str, message: str) -> None:
    error, (logged,) = await in_a_tick(lambda tick: tick.tools.invoke(name, input), Mail())
    assert isinstance(error, ToolFailed)
    assert (error.code, error.message, error.tool, error.details["tool"]) == (code, message, name, name)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert (logged["outcome"], logged["error"]) == ("failed", {"code": code, "message": message})
    result, (logged,) = await in_a_tick(lambda tick: tick.tools.attempt(name, input), Mail())
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert (result.is_ok, result.error.code, result.error.message) == (False, code, message)


async def test_a_failure_is_tried_again_by_invoke_and_remembered_by_attempt() -> None:
    for verb, calls in (("invoke", 3), ("attempt", 1)):
        mail = Mail()

        async def advance(tick: Tick, verb: str = verb) -> Outcome:
            await getattr(tick.tools, verb)("mail.fail")
            if tick.call_number < 3:
                raise RuntimeError("again")
            return Done()

        async with world([Script(advance, toolbox=mail.box)]) as w:
            run_id = await start(w, {})
            await w.wait(60_000)
            assert len(await log(w, run_id, "tool.called")) == calls


async def test_a_tool_is_stopped_at_its_time_limit() -> None:
    mail, seen = Mail(), list[Any]()

    async def advance(tick: Tick) -> Outcome:
        seen.append(await tick.tools.attempt("mail.hang"))
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w, anyio.create_task_group() as tasks:
        run_id = await start(w, {})
        tasks.start_soon(w.drain)
        await mail.hangs.wait()
        w.clock.advance(1_000)
        assert await w.ocean.result(run_id) is None
        (event,) = await log(w, run_id, "tool.called")
    assert (seen[0].error.code, seen[0].error.details["timeout_ms"]) == ("tool_timeout", 1_000)
    assert (event.payload["ms"], event.payload["error"]["message"]) == (1_000, "it took longer than 1000 ms")


async def test_a_dry_run_stops_before_an_external_effect_and_shows_calls_without_one() -> None:
    mail = Mail()

    async def advance(tick: Tick) -> Outcome:
        n = await tick.tools.invoke("mail.count", {"text": "a b"})
        await tick.emit("counted", n)
        await tick.tools.invoke("mail.send", {"to": "ada"})
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        before = await dump(w)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert await dump(w) == before
        assert shown is not None
        assert shown.stopped_at is not None
        assert (shown.stopped_at.kind, shown.stopped_at.name) == ("tool", "mail.send")
        assert [event.type for event in shown.events] == ["tool.called", "counted"]
    assert (mail.sent, mail.counted) == ([], 1)


async def test_a_dry_run_continues_past_a_call_that_is_remembered() -> None:
    mail = Mail()

    async def advance(tick: Tick) -> Outcome:
        output = await tick.tools.invoke("mail.send", {"to": "ada"})
        if tick.call_number == 1:
            raise RuntimeError("again")
        return Done(output)

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        await w.drain()
        w.clock.advance(1_000)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert shown is not None
        assert shown.outcome == Done("sent 1")
    assert len(mail.sent) == 1


async def test_a_method_may_use_tools_without_effect_and_logs_them_with_its_commit() -> None:
    mail = Mail()
    clog = Clog("c", toolbox=mail.box)

    @clog.method
    async def count(tick: Tick, text: str) -> Any:
        return await tick.tools.invoke("mail.count", {"text": text})

    @clog.method
    async def send(tick: Tick, to: str) -> Any:
        try:
            return await tick.tools.invoke("mail.send", {"to": to})
        except ClogError as error:
            raise Refuse(error.message, code=error.code) from error

    async with world([clog]) as w:
        assert await w.ocean.call_clog(clog_id="c", session_id="s", method="count", payload="a b c") == 3
        with pytest.raises(CallRefused, match="has an effect outside and needs a tick"):
            await w.ocean.call_clog(clog_id="c", method="send", payload="ada")
        (event,) = await w.ocean.read_events(types=["tool.called"])
        await check(w)
    assert (event.session_id, event.payload["tool"], mail.sent) == ("s", "mail.count", [])


async def test_nested_calls_of_one_clog_share_its_steps() -> None:
    mail = Mail()

    async def advance(tick: Tick) -> Outcome:
        first = await tick.call("c", "send_one")
        return Done([first, await tick.call("c", "send_one"), await tick.tools.invoke("mail.send", {"to": "ada"})])

    clog = Script(advance, toolbox=mail.box)

    @clog.method
    async def send_one(tick: Tick, payload: Any) -> Any:
        return await tick.tools.invoke("mail.send", {"to": "ada"})

    async with world([clog]) as w:
        run_id = await start(w, {})
        await w.drain()
        assert await w.ocean.result(run_id) == ["sent 1", "sent 2", "sent 3"]


async def test_a_fetch_by_name_is_logged_without_its_secrets() -> None:
    outside = Outside()
    outside.answer("GET https://x.example/*", {"token": "tok-of-the-answer"})
    request = {"url": "https://x.example/?api_key=hunter22", "headers": {"Authorization": "Bearer abcdef-123456"}}

    async def act(tick: Tick) -> Any:
        return await tick.tools.invoke("ocean.http.fetch", request)

    output, (logged,) = await in_a_tick(act, Mail(), clog={"tools": ["ocean.http.fetch"]}, outside=outside)
    assert output["status"] == 200
    assert logged == {
        "tool": "ocean.http.fetch",
        "outcome": "ok",
        "input": {"url": "https://x.example/?api_key=[redacted]", "headers": {"Authorization": "[redacted]"}},
        "ms": 0,
    }


async def test_an_event_comes_in_order_with_what_its_tick_commits() -> None:
    mail = Mail()

    async def advance(tick: Tick) -> Outcome:
        await tick.emit("told", await tick.tools.invoke("mail.send", {"to": "ada"}))
        return Ok()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        await w.drain()
        types = [event.type for event in await log(w, run_id)]
        assert types == ["run.created", "tool.called", "told", "tick.committed"]
        await check(w)
