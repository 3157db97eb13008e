"""Tools by name: their schemas, which clog may use them, and that each does what the typed method does."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import Clog, ClogError, Ok, Outcome, RunInfo, Tick
from ocean.state.errors import InvalidValue, ToolNotAllowed, UnknownTool
from ocean.testing import World, world
from ocean.tools.builtin import TOOLS
from ocean.tools.registry import Toolset, check_allowed
from tests.invariants import check

INVOKED = sorted(name for name, spec in TOOLS.items() if spec.invoke is not None)

USES: dict[str, Callable[[Tick], Awaitable[Any]]] = {
    "ocean.storage.read_scoped": lambda tick: tick.read(run=True),
    "ocean.storage.write_scoped": lambda tick: tick.write(),
    "ocean.events.emit": lambda tick: tick.emit("said"),
    "ocean.events.stream": lambda tick: tick.stream("said"),
    "ocean.clog.call": lambda tick: tick.call("echo", "shout", "x"),
    "ocean.runs.create": lambda tick: tick.create_run(clog_id="echo"),
    "ocean.runs.signal": lambda tick: tick.signal("nobody"),
    "ocean.runs.list": lambda tick: tick.list_runs(),
    "ocean.runs.get": lambda tick: tick.get_run("nobody"),
    "ocean.clogs.list": lambda tick: tick.list_clogs(),
    "ocean.inbox.pending": lambda tick: tick.pending(),
    "ocean.runs.set_attributes": lambda tick: tick.set_attributes(kind="x"),
    "ocean.runs.release_dedupe_key": lambda tick: tick.release_dedupe_key(),
    "ocean.timers.set": lambda tick: tick.set_timer("t", after_ms=1),
    "ocean.timers.cancel": lambda tick: tick.cancel_timer("t"),
    "ocean.counters.take": lambda tick: tick.take("sent", limit=3),
    "ocean.http.fetch": lambda tick: tick.fetch("http://127.0.0.1/"),
    "ocean.steps.run": lambda tick: tick.step("one", lambda key: 1),
}
"""One use of each tool through its typed method."""

INPUTS: dict[str, dict[str, Any]] = {
    "ocean.storage.read_scoped": {"run": True},
    "ocean.storage.write_scoped": {},
    "ocean.events.emit": {"type": "said"},
    "ocean.events.stream": {"type": "said"},
    "ocean.clog.call": {"clog_id": "echo", "method": "shout", "payload": "x"},
    "ocean.runs.create": {"clog_id": "echo"},
    "ocean.runs.signal": {"run_id": "nobody"},
    "ocean.runs.list": {},
    "ocean.runs.get": {"run_id": "nobody"},
    "ocean.clogs.list": {},
    "ocean.inbox.pending": {},
    "ocean.runs.set_attributes": {"attributes": {"kind": "x"}},
    "ocean.runs.release_dedupe_key": {},
    "ocean.timers.set": {"name": "t", "after_ms": 1},
    "ocean.timers.cancel": {"name": "t"},
    "ocean.counters.take": {"key": "sent", "limit": 3},
    "ocean.http.fetch": {"url": "http://127.0.0.1/"},
}
"""One input of each tool that can be invoked by name."""


def echo() -> Clog:
    clog = Clog("echo")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Ok()

    @clog.method
    async def shout(tick: Tick, payload: str) -> str:
        return payload.upper()

    return clog


async def in_a_tick(act: Callable[[Tick], Awaitable[Any]], **clog: Any) -> tuple[Any, RunInfo, list[tuple[str, Any]]]:
    """Return the result of `act` inside a tick, its run afterwards, and the run's log."""
    results: list[Any] = []
    doer = Clog("doer", **clog)

    @doer.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "created":
            results.append(await act(tick))
        return Ok()

    async with world(clogs=[doer, echo()]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="doer", input={}, dedupe_key="mine")
        await w.ocean.advance()
        await check(w)
        after = await w.ocean.get_run(run.run_id)
        assert after is not None
        return results[0], after, await log(w, run.run_id)


async def log(w: World, run_id: str) -> list[tuple[str, Any]]:
    return [(event.type, event.payload) for event in await w.ocean.read_events(run_id=run_id)]


def invoking(name: str, input: Any = None) -> Callable[[Tick], Awaitable[Any]]:
    return lambda tick: tick.tools.invoke(name, input)


def refusal_of(act: Callable[[Tick], Awaitable[Any]]) -> Callable[[Tick], Awaitable[Any]]:
    """Call `act` and return the error it raises."""

    async def refused(tick: Tick) -> Any:
        try:
            await act(tick)
        except Exception as error:
            return error
        return None

    return refused


def test_the_tools_are_those_of_the_design() -> None:
    assert set(TOOLS) == set(USES)
    assert set(INVOKED) == set(INPUTS) == set(TOOLS) - {"ocean.steps.run"}
    assert all(name == spec.name and spec.description.endswith((".", ").")) for name, spec in TOOLS.items())


@pytest.mark.parametrize("name", INVOKED)
def test_a_tool_has_a_json_schema_that_allows_no_other_field(name: str) -> None:
    schema = json.loads(json.dumps(TOOLS[name].json_schema()))
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(INPUTS[name]) <= set(schema.get("properties", {}))
    assert set(schema.get("required", ())) <= set(INPUTS[name])


def test_the_global_row_is_called_global_in_the_schemas() -> None:
    for name in ("ocean.storage.read_scoped", "ocean.storage.write_scoped"):
        properties = TOOLS[name].json_schema()["properties"]
        assert "global" in properties
        assert "global_" not in properties


def test_only_fetch_reaches_out() -> None:
    assert [name for name, spec in TOOLS.items() if spec.reaches_out] == ["ocean.http.fetch"]


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_clog_that_lists_nothing_may_use_what_stays_inside_the_database(tool: str) -> None:
    if TOOLS[tool].reaches_out:
        with pytest.raises(ToolNotAllowed, match=f"clog 'c' must list {tool} in"):
            check_allowed(Clog("c"), tool)
    else:
        check_allowed(Clog("c"), tool)


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_clog_that_lists_tools_may_use_those_and_no_others(tool: str) -> None:
    check_allowed(Clog("c", tools=[tool]), tool)
    for tools in ([], [other for other in TOOLS if other != tool]):
        with pytest.raises(ToolNotAllowed, match=tool) as refusal:
            check_allowed(Clog("c", tools=tools), tool)
        assert refusal.value.details == {"tool": tool}


@pytest.mark.anyio
@pytest.mark.parametrize("tool", sorted(TOOLS))
async def test_the_typed_method_requires_the_same_tool(tool: str) -> None:
    others = [other for other in TOOLS if other != tool]
    error, _, _ = await in_a_tick(refusal_of(USES[tool]), tools=others)
    assert isinstance(error, ToolNotAllowed)
    assert error.details == {"tool": tool}


@pytest.mark.anyio
@pytest.mark.parametrize("tool", INVOKED)
async def test_a_tool_invoked_by_name_is_refused_to_a_clog_that_does_not_list_it(tool: str) -> None:
    others = [other for other in TOOLS if other != tool]
    error, run, events = await in_a_tick(refusal_of(invoking(tool, INPUTS[tool])), tools=others)
    assert isinstance(error, ToolNotAllowed)
    assert (run.status, run.attributes, run.dedupe_key) == ("idle", {}, "mine")
    assert [type for type, _ in events] == ["run.created", "tick.committed"]


@pytest.mark.anyio
async def test_a_called_clog_uses_its_own_list_not_its_callers() -> None:
    helper = Clog("helper", tools=["ocean.storage.read_scoped"])

    @helper.method
    async def say(tick: Tick, payload: Any) -> None:
        await tick.emit("said")

    caller = Clog("caller")

    @caller.method
    async def ask(tick: Tick, payload: Any) -> Any:
        await tick.emit("asked")
        return await tick.call("helper", "say")

    async with world(clogs=[helper, caller]) as w:
        with pytest.raises(ToolNotAllowed, match=r"clog 'helper' must list ocean\.events\.emit"):
            await w.ocean.call_clog(clog_id="caller", method="ask")
        assert await w.ocean.read_events() == []


def test_a_list_with_a_wrong_name_is_refused_with_the_near_one() -> None:
    with pytest.raises(
        UnknownTool, match=r"clog 'c' lists an unknown tool 'ocean.event.emit'; did you mean 'ocean.events.emit'"
    ):
        Toolset().check_names(Clog("c", tools=["ocean.event.emit"]))
    Toolset().check_names(Clog("c", tools=list(TOOLS)))
    Toolset().check_names(Clog("c"))


@pytest.mark.anyio
async def test_an_instance_does_not_open_with_a_clog_that_lists_a_wrong_name() -> None:
    with pytest.raises(UnknownTool, match="clog 'c' lists"):
        async with world(clogs=[Clog("c", tools=["ocean.storage.read"])]):
            pass


@pytest.mark.anyio
async def test_an_instance_lists_its_tools() -> None:
    async with world() as w:
        assert [spec.name for spec in w.ocean.list_tools()] == list(TOOLS)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["ocean.event.emit", "ocean.steps.run", ""])
async def test_a_tool_that_cannot_be_invoked_by_name_is_unknown(name: str) -> None:
    error, _, _ = await in_a_tick(refusal_of(invoking(name, {})))
    assert isinstance(error, UnknownTool)
    assert f"there is no tool {name!r} to invoke" in str(error)


BAD_INPUTS: dict[str, tuple[str, Any, str]] = {
    "a field too many": ("ocean.events.emit", {"type": "x", "kind": 1}, "kind: Extra inputs are not permitted"),
    "a field missing": ("ocean.events.emit", {"payload": 1}, "type: Field required"),
    "a number for a text": ("ocean.events.emit", {"type": 1}, "type: Input should be a valid string"),
    "a text for a boolean": ("ocean.storage.read_scoped", {"run": "yes"}, "run: Input should be a valid boolean"),
    "a text for a number": ("ocean.timers.set", {"name": "t", "at": "5"}, "at: Input should be a valid integer"),
    "a wrong word": ("ocean.storage.write_scoped", {"clear": ["tick"]}, "clear.0: Input should be 'run', 'session'"),
    "no input at all": ("ocean.events.emit", None, "type: Field required"),
    "a list for an object": ("ocean.events.emit", [1], "input: Input should be a valid dictionary"),
    "the python name of global": ("ocean.storage.read_scoped", {"global_": True}, "global_: Extra inputs"),
    "an attribute that is a list": (
        "ocean.runs.set_attributes",
        {"attributes": {"a": [1]}},
        "attributes.a.str: Input should be a valid string",
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "input", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS)
async def test_an_input_that_does_not_fit_is_refused_with_its_place(name: str, input: Any, message: str) -> None:
    error, _, events = await in_a_tick(refusal_of(invoking(name, input)))
    assert isinstance(error, InvalidValue)
    assert str(error).startswith(f"{name}: {message}")
    assert [type for type, _ in events] == ["run.created", "tick.committed"]


@pytest.mark.anyio
async def test_values_pass_the_json_gate_at_the_tool_call() -> None:
    error, _, _ = await in_a_tick(refusal_of(invoking("ocean.events.emit", {"type": "x", "payload": {"a": {1}}})))
    assert isinstance(error, InvalidValue)
    assert str(error) == "payload.a must be JSON, got a value of type set"


@pytest.mark.anyio
async def test_rows_of_every_scope_are_written_and_read_back_by_name() -> None:
    clog = Clog("doer")
    seen: list[Any] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        query = {"run": True, "session": True, "global": True, "tick": ["a"], "history": 1}
        seen.append(await tick.tools.invoke("ocean.storage.read_scoped", query))
        values = {"run": {"n": 1}, "session": None, "global": [2], "tick": {"a": 3}}
        await tick.tools.invoke("ocean.storage.write_scoped", values)
        return Ok()

    async with world(clogs=[clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="doer", input={})
        await w.ocean.signal(run.run_id)
        await w.drain()
        await check(w)
    first, second = seen
    assert not any(first[name] for name in ("run", "session", "global", "tick", "history", "has_run", "has_global"))
    assert (second["run"], second["session"], second["global"], second["tick"]) == ({"n": 1}, None, [2], {})
    assert second["has_session"]
    assert second["history"] == [{"tick": 1, "rows": {"a": 3}}]


@pytest.mark.anyio
async def test_a_row_is_replaced_left_alone_or_cleared_by_name() -> None:
    clog = Clog("doer")
    seen: list[Any] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.tools.invoke("ocean.storage.read_scoped", {"run": True, "session": True})
        seen.append((rows["has_run"], rows["run"], rows["has_session"], rows["session"]))
        await tick.tools.invoke("ocean.storage.write_scoped", tick.input)
        return Ok()

    async with world(clogs=[clog]) as w:
        first = {"run": {"n": 1}, "session": None}
        run = await w.ocean.create_run(session_id="s", clog_id="doer", input=first)
        for write in ({"session": 2}, {"clear": ["run"], "session": 3}, {}):
            await w.ocean.signal(run.run_id, write)
        await w.drain()
        await check(w)
    assert seen == [
        (False, None, False, None),
        (True, {"n": 1}, True, None),
        (True, {"n": 1}, True, 2),
        (False, None, True, 3),
    ]


@pytest.mark.anyio
async def test_events_are_emitted_and_streamed_by_name() -> None:
    async def act(tick: Tick) -> None:
        await tick.tools.invoke("ocean.events.emit", {"type": "later", "payload": 1})
        await tick.tools.invoke("ocean.events.stream", {"type": "now"})

    _, _, events = await in_a_tick(act)
    assert [event for event in events if "." not in event[0]] == [("now", None), ("later", 1)]


@pytest.mark.anyio
async def test_a_clog_is_called_by_name() -> None:
    result, _, _ = await in_a_tick(invoking("ocean.clog.call", INPUTS["ocean.clog.call"]))
    assert result == "X"


@pytest.mark.anyio
async def test_attributes_and_the_dedupe_key_are_changed_by_name() -> None:
    async def act(tick: Tick) -> None:
        await tick.tools.invoke("ocean.runs.set_attributes", {"attributes": {"kind": "x", "n": 1, "on": True}})
        await tick.tools.invoke("ocean.runs.release_dedupe_key")

    _, run, _ = await in_a_tick(act)
    assert run.attributes == {"kind": "x", "n": 1, "on": True}
    assert run.dedupe_key is None


@pytest.mark.anyio
async def test_timers_are_set_and_cancelled_by_name() -> None:
    async def act(tick: Tick) -> int:
        await tick.tools.invoke("ocean.timers.set", {"name": "stays", "after_ms": 500})
        await tick.tools.invoke("ocean.timers.set", {"name": "goes", "at": tick.now + 100, "input": 1})
        await tick.tools.invoke("ocean.timers.cancel", {"name": "goes"})
        return tick.now

    now, run, events = await in_a_tick(act)
    assert (run.status, run.wake_at, run.pending_count) == ("waiting", now + 500, 1)
    assert [payload["timer"] for type, payload in events if type == "timer.cancelled"] == ["goes"]


@pytest.mark.anyio
async def test_runs_are_created_signalled_and_listed_by_name() -> None:
    clog = Clog("doer")
    pages: list[Any] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "created":
            query = {"clog_id": "echo", "attributes": {"kind": "kid"}, "priority": 2, "notify_parent": True}
            child = await tick.tools.invoke("ocean.runs.create", query)
            await tick.tools.invoke("ocean.runs.signal", {"run_id": child, "input": None, "signal_id": "hello"})
        else:
            query = {"clog_id": "echo", "attributes": {"kind": "kid"}, "status": "idle", "limit": 10}
            pages.append(await tick.tools.invoke("ocean.runs.list", query))
        return Ok()

    async with world(clogs=[clog, echo()]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="doer", input={})
        await w.drain()
        await w.ocean.signal(run.run_id)
        await w.drain()
        await check(w)
        (child,) = pages[0]["runs"]
        assert (child["parent_run_id"], child["priority"], child["tick"]) == (run.run_id, 2, 1)
        assert pages[0]["next_cursor"] is None
        assert [reason.reason for reason in await w.ocean.list_ticks(child["run_id"])] == ["signal"]


@pytest.mark.anyio
async def test_a_run_created_by_name_without_an_input_is_idle_and_with_null_is_not() -> None:
    clog, sleeper = Clog("doer"), Clog("sleeper")
    created: list[str] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        for input in ({}, {"input": None}):
            created.append(await tick.tools.invoke("ocean.runs.create", {"clog_id": "sleeper"} | input))
        return Ok()

    async with world(clogs=[clog, sleeper]) as w:
        await w.ocean.create_run(session_id="s", clog_id="doer", input={})
        await w.ocean.advance()
        await check(w)
        found = [await w.ocean.get_run(run_id) for run_id in created]
    assert [run.status for run in found if run is not None] == ["idle", "pending"]


@pytest.mark.anyio
async def test_fetch_by_name_is_guarded_as_fetch_is() -> None:
    error, _, _ = await in_a_tick(
        refusal_of(invoking("ocean.http.fetch", {"url": "http://127.0.0.1:1/"})), tools=["ocean.http.fetch"]
    )
    assert getattr(error, "code", None) == "fetch_refused"


@pytest.mark.anyio
async def test_tools_stop_working_when_their_tick_is_over() -> None:
    kept: list[Tick] = []

    async def keep(tick: Tick) -> None:
        kept.append(tick)

    await in_a_tick(keep)
    with pytest.raises(ClogError, match="this tick is over"):
        await kept[0].tools.invoke("ocean.events.emit", {"type": "late"})


@pytest.mark.anyio
async def test_a_run_of_any_clog_and_the_clogs_themselves_are_shown_by_name() -> None:
    clog = Clog("doer", generic=["cancel"])
    seen: list[Any] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        for run_id in ("other", "nobody"):
            seen.append(await tick.tools.invoke("ocean.runs.get", {"run_id": run_id}))
        seen.append(await tick.tools.invoke("ocean.clogs.list"))
        return Ok()

    async with world(clogs=[clog, echo()]) as w:
        await w.ocean.create_run(session_id="elsewhere", clog_id="echo", run_id="other")
        await w.ocean.create_run(session_id="s", clog_id="doer", input={})
        await w.drain()
        other, missing, clogs = seen
        assert (other["session_id"], other["clog_id"], other["status"], missing) == ("elsewhere", "echo", "idle", None)
        assert {each["clog_id"]: each["allows"] for each in clogs}["doer"] == ("cancel",)
        assert len(clogs) == 2
