"""Tools of authors in ticks: remembered, audited, limited in time, denied, approved, and left alone by dry runs."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from ocean import (
    Approval,
    ApprovalNeeded,
    CallRefused,
    Clog,
    ClogError,
    CredentialRef,
    Done,
    InvalidValue,
    Ocean,
    Ok,
    Outcome,
    Refuse,
    RunEnded,
    RunStatus,
    Tick,
    ToolBox,
    ToolCall,
    ToolDenied,
    ToolFailed,
    ToolNotAllowed,
    ToolResult,
    UnknownTool,
)
from ocean.testing import Outside, World, crash_everywhere, world
from tests.invariants import check
from tests.lifecycle.acting import Script, dump, log, look, start

pytestmark = pytest.mark.anyio

Act = Callable[[Tick], Awaitable[Any]]


class Mail:
    """A box of tools whose calls are counted."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.counted = 0
        self.hangs = anyio.Event()
        self.box = ToolBox("mail")
        self.box.tool(name="send", description="Send a mail.")(self._send)
        self.box.tool(name="count", description="Count words.", effect="none")(self._count)
        self.box.tool(name="fail", description="Fails.")(self._fail)
        self.box.tool(name="break", description="Breaks.")(self._break)
        self.box.tool(name="hang", description="Hangs.", timeout_ms=1_000)(self._hang)
        self.box.tool(name="odd", description="Answers what is no JSON.")(self._odd)
        self.box.tool(name="wipe", description="Delete all mails.", dangerous=True)(self._wipe)

    async def _send(self, to: str, call: ToolCall) -> str:
        self.sent.append((to, call.idempotency_key))
        return f"sent {len(self.sent)}"

    def _count(self, text: str) -> int:
        self.counted += 1
        return len(text.split())

    async def _fail(self, code: str = "mailbox_full") -> None:
        raise ToolFailed("the box is full", code=code, details={"left": 0})

    def _break(self) -> None:
        raise RuntimeError("no route to Bearer abcdef-123456")

    async def _hang(self) -> None:
        self.hangs.set()
        await anyio.sleep_forever()

    async def _odd(self) -> Any:
        return {"a": {1, 2}}

    async def _wipe(self, box: str, call: ToolCall) -> str:
        return f"wiped {box} for {call.approved_by}"


async def in_a_tick(act: Act, mail: Mail, **options: Any) -> tuple[Any, list[Any]]:
    """What `act` answers inside a tick, or the error it raises; and the payloads of `tool.called`."""
    answers: list[Any] = []

    async def advance(tick: Tick) -> Outcome:
        try:
            answers.append(await act(tick))
        except Exception as error:
            answers.append(error)
        return Done()

    clog = Script(advance, toolbox=options.pop("toolbox", mail.box), **options.pop("clog", {}))
    async with world([clog], **options) as w:
        run_id = await start(w, {})
        await w.drain()
        await check(w)
        assert (await look(w, run_id)).status is RunStatus.DONE
        return answers[0], [event.payload for event in await log(w, run_id, "tool.called")]


async def test_a_tool_is_invoked_by_its_name_and_by_the_models_name() -> None:
    mail = Mail()
    for name in ("mail.send", "mail__send"):
        answer, (told,) = await in_a_tick(lambda tick, name=name: tick.tools.invoke(name, {"to": "ada"}), mail)  # type: ignore[misc]
        assert answer == f"sent {len(mail.sent)}"
        assert told == {"tool": "mail.send", "outcome": "ok", "input": {"to": "ada"}, "ms": 0}
    assert [to for to, _ in mail.sent] == ["ada", "ada"]


async def test_an_effect_outside_is_remembered_over_the_calls_of_its_tick() -> None:
    mail, answers = Mail(), list[Any]()

    async def advance(tick: Tick) -> Outcome:
        for to in ("ada", "bob", "ada"):
            answers.append(await tick.tools.invoke("mail.send", {"to": to}))
        if tick.call_number < 3:
            raise RuntimeError("after the mails have gone")
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        await w.wait(10_000)
        await check(w)
        events = await log(w, run_id, "tool.called")
    assert answers == ["sent 1", "sent 2", "sent 3"] * 3, "the same call twice in a tick is two calls"
    assert [to for to, _ in mail.sent] == ["ada", "bob", "ada"]
    assert len({key for _, key in mail.sent}) == 3
    assert [(event.tick, event.call, event.clog_id) for event in events] == [(1, 1, "c")] * 3, "told once, and kept"


async def test_calls_in_another_order_get_their_own_results() -> None:
    mail, answers = Mail(), list[Any]()

    async def advance(tick: Tick) -> Outcome:
        order = ("ada", "bob") if tick.call_number == 1 else ("bob", "ada")
        answers.append({to: await tick.tools.invoke("mail.send", {"to": to}) for to in order})
        if tick.call_number == 1:
            raise RuntimeError("again")
        return Done()

    async with world([Script(advance, toolbox=mail.box)]) as w:
        await start(w, {})
        await w.wait(10_000)
    assert answers == [{"ada": "sent 1", "bob": "sent 2"}] * 2


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
    "an answer that is no JSON": ("mail.odd", {}, "invalid_value", "its answer.a is a set, which is not JSON"),
}


@pytest.mark.parametrize(("name", "input", "code", "message"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_structured_and_told(name: str, input: Any, code: str, message: str) -> None:
    error, (told,) = await in_a_tick(lambda tick: tick.tools.invoke(name, input), Mail())
    assert isinstance(error, ToolFailed)
    assert (error.code, error.message, error.tool, error.details["tool"]) == (code, message, name, name)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert (told["outcome"], told["error"]) == ("failed", {"code": code, "message": message})
    result, (told,) = await in_a_tick(lambda tick: tick.tools.attempt(name, input), Mail())
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


async def test_a_tool_has_so_much_time() -> None:
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


REFUSALS: dict[str, tuple[str, Any, type[Exception], str]] = {
    "a wrong name": ("mail.sen", {}, UnknownTool, "did you mean 'mail.send'?"),
    "no name": ("", {}, UnknownTool, "there is no tool ''"),
    "a field missing": ("mail.send", {}, InvalidValue, "mail.send: to: Field required"),
    "no input": ("mail.send", None, InvalidValue, "mail.send: to: Field required"),
    "a field too many": ("mail.send", {"to": "a", "cc": 1}, InvalidValue, "mail.send: cc: Extra inputs"),
    "a number for a text": ("mail.send", {"to": 7}, InvalidValue, "mail.send: to: Input should be a valid string"),
    "a list": ("mail.send", [1], InvalidValue, "mail.send: input: Input should be an object"),
    "no JSON": ("mail.send", {"to": {1}}, InvalidValue, "input.to is a set, which is not JSON"),
    "no human asked": ("mail.wipe", {"box": "a"}, ApprovalNeeded, "tool 'mail.wipe' is dangerous: ask a human"),
}


@pytest.mark.parametrize(("name", "input", "kind", "message"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_calls_nothing_and_is_told(name: str, input: Any, kind: Any, message: str) -> None:
    mail = Mail()
    error, told = await in_a_tick(lambda tick: tick.tools.invoke(name, input), mail)
    assert isinstance(error, kind)
    assert message in str(error)
    assert mail.sent == []
    if kind is UnknownTool:
        assert told == [], "there is no such tool to tell of"
    else:
        assert (told[0]["tool"], told[0]["outcome"], told[0]["error"]["code"]) == (name, "refused", error.code)
    result, _ = await in_a_tick(lambda tick: tick.tools.attempt(name, input), mail)
    assert result.error.code == error.code


async def test_a_tool_is_refused_to_a_clog_that_does_not_list_it() -> None:
    mail = Mail()

    async def act(tick: Tick) -> Any:
        return await tick.tools.invoke("mail.send", {"to": "ada"})

    error, (told,) = await in_a_tick(act, mail, toolbox=["mail.count"], tools=[mail.box])
    assert isinstance(error, ToolNotAllowed)
    assert "clog 'c' may not use mail.send" in str(error)
    assert (told["outcome"], told["error"]["code"]) == ("refused", "tool_not_allowed")
    answer, _ = await in_a_tick(act, mail, toolbox=(), tools=[mail.box], clog={"tools": ["mail.send"]})
    assert answer == "sent 1"


async def test_a_denied_tool_is_refused_to_everybody_and_named_with_its_pattern() -> None:
    mail = Mail()

    async def act(tick: Tick) -> Any:
        assert "mail.send" not in [spec.name for spec in tick.tools.usable()]
        return await tick.tools.invoke("mail.send", {"to": "ada"})

    error, (told,) = await in_a_tick(act, mail, deny_tools=["mail.s*"])
    assert isinstance(error, ToolDenied)
    assert str(error).startswith("tool 'mail.send' is denied on this instance, by 'mail.s*'")
    assert (told["outcome"], told["error"]["code"], mail.sent) == ("refused", "tool_denied", [])


async def test_the_houses_tools_are_denied_by_either_way() -> None:
    async def act(tick: Tick) -> Any:
        errors = []
        for use in (tick.emit("said"), tick.tools.invoke("ocean.events.emit", {"type": "said"})):
            try:
                await use
            except ToolDenied as error:
                errors.append(error.details["tool"])
        return errors

    errors, _ = await in_a_tick(act, Mail(), deny_tools=["ocean.events.emit"])
    assert errors == ["ocean.events.emit"] * 2


async def test_a_tool_does_not_get_around_a_denied_fetch() -> None:
    box = ToolBox("web")

    @box.tool
    async def get(call: ToolCall) -> int:
        """Get it."""
        return (await call.fetch("https://x.example/")).status

    @box.tool(effect="none")
    async def peek(call: ToolCall) -> int:
        """Get it, and call that nothing."""
        return (await call.fetch("https://x.example/")).status

    outside = Outside()
    outside.answer("GET https://x.example/", {})
    refused = "clog_error"
    for name, denied, code in (
        ("web.get", (), None),
        ("web.get", ["ocean.http.*"], refused),
        ("web.peek", (), refused),
    ):

        async def act(tick: Tick, name: str = name) -> Any:
            return await tick.tools.attempt(name)

        result, _ = await in_a_tick(act, Mail(), toolbox=box, deny_tools=denied, outside=outside)
        assert (result.error.code if result.error else None) == code
    assert [call.kind for call in outside.calls] == ["fetch", "step", "step"]


async def test_an_approval_is_of_one_call_and_its_giver_is_told() -> None:
    async def act(tick: Tick) -> Any:
        fingerprint = tick.tools.fingerprint("mail.wipe", {"box": "a"})
        with pytest.raises(ApprovalNeeded, match="the approval is of another call"):
            await tick.tools.invoke("mail.wipe", {"box": "b"}, approval=Approval("kim", fingerprint))
        return await tick.tools.invoke("mail__wipe", {"box": "a"}, approval=Approval("kim", fingerprint))

    answer, (refused, told) = await in_a_tick(act, Mail())
    assert answer == "wiped a for kim"
    assert (refused["outcome"], refused["input"]) == ("refused", {"box": "b"})
    assert (told["outcome"], told["approved_by"]) == ("ok", "kim")


async def test_a_dry_run_stops_before_an_effect_outside_and_shows_what_has_none() -> None:
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


async def test_a_dry_run_goes_on_past_a_call_that_is_remembered() -> None:
    mail = Mail()

    async def advance(tick: Tick) -> Outcome:
        answer = await tick.tools.invoke("mail.send", {"to": "ada"})
        if tick.call_number == 1:
            raise RuntimeError("again")
        return Done(answer)

    async with world([Script(advance, toolbox=mail.box)]) as w:
        run_id = await start(w, {})
        await w.drain()
        w.clock.advance(1_000)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert shown is not None
        assert shown.outcome == Done("sent 1")
    assert len(mail.sent) == 1


async def test_a_method_may_use_what_has_no_effect_and_tells_with_its_commit() -> None:
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
        with pytest.raises(CallRefused, match="acts outside, so it needs a tick"):
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


async def test_a_fetch_by_name_is_told_without_its_secrets() -> None:
    outside = Outside()
    outside.answer("GET https://x.example/*", {"token": "tok-of-the-answer"})
    asked = {"url": "https://x.example/?api_key=hunter22", "headers": {"Authorization": "Bearer abcdef-123456"}}

    async def act(tick: Tick) -> Any:
        return await tick.tools.invoke("ocean.http.fetch", asked)

    answer, (told,) = await in_a_tick(act, Mail(), clog={"tools": ["ocean.http.fetch"]}, outside=outside)
    assert answer["status"] == 200
    assert told == {
        "tool": "ocean.http.fetch",
        "outcome": "ok",
        "input": {"url": "https://x.example/?api_key=[redacted]", "headers": {"Authorization": "[redacted]"}},
        "ms": 0,
    }


async def test_a_clog_cannot_write_events_that_look_like_the_audit() -> None:
    async def act(tick: Tick) -> Any:
        await tick.emit("tool.called", {"tool": "mail.send", "outcome": "ok"})

    error, told = await in_a_tick(act, Mail())
    assert isinstance(error, InvalidValue)
    assert told == []


async def test_what_a_model_is_offered_is_what_the_clog_may_use() -> None:
    async def act(tick: Tick) -> Any:
        assert [tick.tools.find(name).name for name in ("mail__send", "mail.send")] == ["mail.send"] * 2
        with pytest.raises(ToolDenied):
            tick.tools.find("mail.hang")
        return [each["name"] for each in tick.tools.schemas("anthropic", ["mail.send", "mail.hang", "mail.count"])]

    names, _ = await in_a_tick(act, Mail(), deny_tools=["mail.hang"])
    assert names == ["mail__send", "mail__count"]


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


async def test_a_call_on_an_ended_run_uses_no_tool_as_it_could_not_tell() -> None:
    mail = Mail()
    clog = Script(Done(), toolbox=mail.box)

    @clog.method
    async def count(tick: Tick, text: str) -> Any:
        return await tick.tools.invoke("mail.count", {"text": text})

    async with world([clog]) as w:
        run_id = await start(w, {})
        await w.drain()
        with pytest.raises(RunEnded):
            await w.ocean.call_clog(run_id=run_id, method="count", payload="a b")
        await check(w)


async def test_the_environment_denies_where_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCEAN_TOOLS_DENY", "mail.s*")
    async with Ocean.open(
        "sqlite://:memory:", clogs=[Clog("c", toolbox=Mail().box)], deny_tools=["mail.wipe"]
    ) as ocean:
        denied = {spec.name: spec.denied for spec in ocean.list_tools() if spec.denied}
    assert denied == {"mail.send": "mail.s*", "mail.wipe": "mail.wipe"}
