"""Refused tools of authors: unknown, not listed, denied or not approved; and reserved names."""

from typing import Any

import pytest

from ocean import (
    Approval,
    ApprovalNeeded,
    Clog,
    Done,
    InvalidValue,
    Ocean,
    RunEnded,
    Tick,
    ToolBox,
    ToolCall,
    ToolDenied,
    ToolNotAllowed,
    UnknownTool,
)
from ocean.testing import Outside, world
from tests.invariants import check
from tests.lifecycle.acting import Script, start
from tests.lifecycle.mailing import Mail, in_a_tick

pytestmark = pytest.mark.anyio


REFUSALS: dict[str, tuple[str, Any, type[Exception], str]] = {
    "a wrong name": ("mail.sen", {}, UnknownTool, "did you mean 'mail.send'?"),
    "no name": ("", {}, UnknownTool, "there is no tool ''"),
    "a field missing": ("mail.send", {}, InvalidValue, "mail.send: to: Field required"),
    "no input": ("mail.send", None, InvalidValue, "mail.send: to: Field required"),
    "a field too many": ("mail.send", {"to": "a", "cc": 1}, InvalidValue, "mail.send: cc: Extra inputs"),
    "a number for a text": ("mail.send", {"to": 7}, InvalidValue, "mail.send: to: Input should be a valid string"),
    "a list": ("mail.send", [1], InvalidValue, "mail.send: input: Input should be an object"),
    "no JSON": ("mail.send", {"to": {1}}, InvalidValue, "input.to must be JSON, got a value of type set"),
    "no human asked": ("mail.wipe", {"box": "a"}, ApprovalNeeded, "tool 'mail.wipe' is dangerous: get an approval"),
}


@pytest.mark.parametrize(("name", "input", "kind", "message"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_tool_is_not_called_and_is_logged(name: str, input: Any, kind: Any, message: str) -> None:
    mail = Mail()
    error, logged = await in_a_tick(lambda tick: tick.tools.invoke(name, input), mail)
    assert isinstance(error, kind)
    assert message in str(error)
    assert mail.sent == []
    if kind is UnknownTool:
        assert logged == [], "an unknown tool is not logged"
    else:
        assert (logged[0]["tool"], logged[0]["outcome"], logged[0]["error"]["code"]) == (name, "refused", error.code)
    result, _ = await in_a_tick(lambda tick: tick.tools.attempt(name, input), mail)
    assert result.error.code == error.code


async def test_a_tool_is_refused_to_a_clog_that_does_not_list_it() -> None:
    mail = Mail()

    async def act(tick: Tick) -> Any:
        return await tick.tools.invoke("mail.send", {"to": "ada"})

    error, (logged,) = await in_a_tick(act, mail, toolbox=["mail.count"], tools=[mail.box])
    assert isinstance(error, ToolNotAllowed)
    assert "clog 'c' must list mail.send" in str(error)
    assert (logged["outcome"], logged["error"]["code"]) == ("refused", "tool_not_allowed")
    output, _ = await in_a_tick(act, mail, toolbox=(), tools=[mail.box], clog={"tools": ["mail.send"]})
    assert output == "sent 1"


async def test_a_denied_tool_is_refused_to_every_clog_and_named_with_its_pattern() -> None:
    mail = Mail()

    async def act(tick: Tick) -> Any:
        assert "mail.send" not in [spec.name for spec in tick.tools.usable()]
        return await tick.tools.invoke("mail.send", {"to": "ada"})

    error, (logged,) = await in_a_tick(act, mail, deny_tools=["mail.s*"])
    assert isinstance(error, ToolDenied)
    assert str(error).startswith("tool 'mail.send' is denied on this instance, by 'mail.s*'")
    assert (logged["outcome"], logged["error"]["code"], mail.sent) == ("refused", "tool_denied", [])


async def test_a_denied_built_in_tool_is_refused_by_method_and_by_name() -> None:
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


async def test_a_tool_does_not_bypass_a_denied_fetch() -> None:
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


async def test_an_approval_is_of_one_call_and_its_approver_is_logged() -> None:
    async def act(tick: Tick) -> Any:
        fingerprint = tick.tools.fingerprint("mail.wipe", {"box": "a"})
        with pytest.raises(ApprovalNeeded, match="the approval must be of this call"):
            await tick.tools.invoke("mail.wipe", {"box": "b"}, approval=Approval("kim", fingerprint))
        return await tick.tools.invoke("mail__wipe", {"box": "a"}, approval=Approval("kim", fingerprint))

    output, (refused, logged) = await in_a_tick(act, Mail())
    assert output == "wiped a for kim"
    assert (refused["outcome"], refused["input"]) == ("refused", {"box": "b"})
    assert (logged["outcome"], logged["approved_by"]) == ("ok", "kim")


async def test_a_clog_cannot_write_events_that_look_like_the_audit() -> None:
    async def act(tick: Tick) -> Any:
        await tick.emit("tool.called", {"tool": "mail.send", "outcome": "ok"})

    error, logged = await in_a_tick(act, Mail())
    assert isinstance(error, InvalidValue)
    assert logged == []


async def test_a_model_is_offered_the_tools_that_the_clog_may_use() -> None:
    async def act(tick: Tick) -> Any:
        assert [tick.tools.find(name).name for name in ("mail__send", "mail.send")] == ["mail.send"] * 2
        with pytest.raises(ToolDenied):
            tick.tools.find("mail.hang")
        return [each["name"] for each in tick.tools.schemas("anthropic", ["mail.send", "mail.hang", "mail.count"])]

    names, _ = await in_a_tick(act, Mail(), deny_tools=["mail.hang"])
    assert names == ["mail__send", "mail__count"]


async def test_a_call_on_an_ended_run_uses_no_tool_because_it_cannot_log_it() -> None:
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
