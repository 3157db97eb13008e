"""What the tools do, called by the SDK's client, which checks every result against the tool's schema."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp import MCPError

from ocean import Clog, Done, InvalidValue, Outcome, Reply, Tick
from ocean.http.app import make_app
from ocean.mcp.tools import TOOLS
from ocean.mcp.transport import mounted
from ocean.testing import world
from tests.cli.kit import ROOT
from tests.failing import NAME, charge, line_of, place_in
from tests.mcp.kit import McpWorld, error_of, mcp_world, result_of

pytestmark = pytest.mark.anyio

CALLS: dict[str, dict[str, Any]] = {
    "create_run": {"sessionId": "s", "clogId": "c", "input": {"done": 1}, "attributes": {"size": 3}},
    "get_run": {"runId": "r"},
    "list_runs": {"clogId": ["c"], "status": ["idle", "waiting"], "attributes": {"size": {"gte": 2}}, "countUpTo": 9},
    "signal_run": {"runId": "r", "input": {"say": 2}, "signalId": "one", "waitMs": 1000},
    "call_method": {"runId": "r", "method": "echo", "payload": [1]},
    "pause_run": {"runId": "r"},
    "resume_run": {"runId": "r"},
    "retry_run": {"runId": "failed"},
    "explain_run": {"runId": "r"},
    "read_events": {"runId": "r", "types": ["said"], "after": 0},
    "list_ticks": {"runId": "r"},
    "list_inputs": {"runId": "r"},
    "advance": {"runId": "r", "budgetMs": 100},
    "list_clogs": {},
    "cancel_run": {"runId": "r", "reason": "enough"},
}


async def some_runs(a: McpWorld) -> None:
    make = a.w.ocean.create_run
    await make(session_id="s", clog_id="c", run_id="r", input={"say": "hello"}, attributes={"size": 2})
    await make(session_id="s", clog_id="c", run_id="failed", input={"fail": "no"})
    await a.w.drain()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_every_tool_takes_and_returns_what_it_declares(a: McpWorld, mode: str) -> None:
    assert set(CALLS) == {tool.name for tool in TOOLS}
    await some_runs(a)
    async with a.client(mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, arguments in CALLS.items():
            tool = tools[name]
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            jsonschema.validate(arguments, tool.input_schema)
            result = result_of(await client.call_tool(name, arguments))
            assert tool.output_schema is not None
            jsonschema.validate(result, tool.output_schema)
            assert not jsonschema.Draft202012Validator(tool.output_schema).is_valid({"nothing": 1})


async def test_a_run_from_its_creation_to_its_end(a: McpWorld) -> None:
    async with a.client() as client:
        created = result_of(await client.call_tool("create_run", {"sessionId": "s", "clogId": "c", "runId": "r"}))
        assert (created["runId"], created["status"]) == ("r", "idle")
        assert result_of(await client.call_tool("explain_run", {"runId": "r"}))["holds"][0]["code"] == "idle"
        await client.call_tool("signal_run", {"runId": "r", "input": {"say": "hi"}})
        poked = result_of(await client.call_tool("advance", {}))
        assert (poked["advanced"], poked["outcomes"][0]["outcome"]) == (1, "ok")
        ended = result_of(await client.call_tool("signal_run", {"runId": "r", "input": {"done": 5}, "waitMs": 1000}))
        assert (ended["status"], ended["output"]) == ("done", 5)
        assert result_of(await client.call_tool("get_run", {"runId": "r"})) == ended


async def test_the_log_is_read_page_by_page_of_a_run_a_session_a_clog_and_all(a: McpWorld) -> None:
    await some_runs(a)
    async with a.client() as client:
        types: list[str] = []
        after = 0
        while page := result_of(await client.call_tool("read_events", {"runId": "r", "after": after, "limit": 2})):
            types += [event["type"] for event in page["events"]]
            if len(page["events"]) < 2:
                break
            after = page["nextCursor"]
        assert types == ["run.created", "said", "tick.committed"]
        everything = result_of(await client.call_tool("read_events", {}))["events"]
        for place in ({"sessionId": "s"}, {"clogId": "c"}):
            assert result_of(await client.call_tool("read_events", place))["events"] == everything
        assert len(everything) > 3


async def test_a_call_repeated_with_its_key_returns_the_first_result(a: McpWorld) -> None:
    create = {"sessionId": "s", "clogId": "c", "idempotencyKey": "once"}
    async with a.client() as client:
        first = result_of(await client.call_tool("create_run", create))
        assert result_of(await client.call_tool("create_run", create)) == first
        error = error_of(await client.call_tool("create_run", create | {"clogId": "parrot"}))
        assert (error["code"], error["httpStatus"]) == ("request_key_reused", 409)
        assert error_of(await client.call_tool("create_run", create | {"idempotencyKey": 7}))["code"] == "invalid_value"
        poke = {"budgetMs": 10, "idempotencyKey": "poke"}
        assert result_of(await client.call_tool("advance", poke)) == result_of(await client.call_tool("advance", poke))
    assert (await a.w.ocean.count_runs()).count == 1


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "message"),
    [
        ("get_run", {}, "invalid_value", "get_run must be called with runId"),
        ("get_run", {"runId": 5}, "invalid_value", "runId must be a string that is not empty, got 5"),
        ("get_run", {"runId": ""}, "invalid_value", "runId must be a string"),
        ("get_run", {"runid": "r", "runId": "r"}, "invalid_value", "has no argument 'runid'; did you mean 'runId'?"),
        ("get_run", {"runId": "a/b"}, "run_not_found", "there is no run 'a/b'"),
        ("get_run", {"runId": "../v1/session"}, "run_not_found", "there is no run '../v1/session'"),
        ("create_run", {"sessionId": "s"}, "invalid_body", "clogId: Field required"),
        ("create_run", {"sessionId": "s", "clogId": "c", "priority": "high"}, "invalid_body", "priority"),
        ("create_run", {"sessionId": "s", "clogId": "cc"}, "unknown_clog", "did you mean 'c'?"),
        ("list_runs", {"limit": "many"}, "invalid_query", "limit: must be an integer"),
        ("list_runs", {"limit": 5_000}, "invalid_query", "limit"),
        ("list_runs", {"attributes": {"size": 1}}, "invalid_value", "clog"),
        ("list_runs", {"clogId": []}, "invalid_value", "clogId must not be empty: leave it out"),
        ("list_runs", {"clogId": ["c"], "attributes": {"size": []}}, "invalid_value", "size must not be empty"),
        ("list_runs", {"clogId": ["c"], "attributes": {"size": {}}}, "invalid_value", "size must not be empty"),
        ("list_runs", {"clogId": ["c"], "attributes": {"size": {"over": 1}}}, "invalid_value", "or an object of gt"),
        ("list_runs", {"cursor": "nonsense"}, "bad_cursor", "cursor"),
        ("read_events", {"runId": "r", "clogId": "c"}, "invalid_value", "with runId has no argument 'clogId'"),
        ("read_events", {"after": "yesterday"}, "invalid_query", "after"),
        ("call_method", {"runId": "r"}, "invalid_value", "must be called with method and runId or clogId and method"),
        ("call_method", {"runId": "r", "method": "ech"}, "unknown_method", "did you mean 'echo'?"),
        ("call_method", {"runId": "r", "method": "echo", "sessionId": "s"}, "invalid_value", "no argument 'sessionId'"),
        ("signal_run", {"runId": "failed"}, "run_ended", "has ended"),
        ("list_clogs", {"idempotencyKey": "k"}, "invalid_value", "has no argument 'idempotencyKey'"),
        ("advance", {"budgetMs": 10**9}, "invalid_body", "budgetMs"),
    ],
)  # fmt: skip
async def test_an_invalid_call_returns_the_reason(
    a: McpWorld, tool: str, arguments: Any, code: str, message: str
) -> None:
    await some_runs(a)
    before = await a.w.ocean.last_cursor()
    async with a.client() as client:
        error = error_of(await client.call_tool(tool, arguments))
    assert error["code"] == code
    assert message in error["message"]
    assert await a.w.ocean.last_cursor() == before


async def test_texts_that_look_like_numbers_are_found_as_texts(a: McpWorld) -> None:
    for run_id, value in (
        ("number", 12),
        ("text", "12"),
        ("true", True),
        ("word", "true"),
        ("quoted", '"a'),
        ("b", "b"),
    ):
        await a.w.ocean.create_run(session_id="s", clog_id="c", run_id=run_id, attributes={"v": value})
    async with a.client() as client:
        for wanted, found in ((12, ["number"]), ("12", ["text"]), (True, ["true"]), ("true", ["word"]),
                              ('"a', ["quoted"]), (["b", 12], ["b", "number"])):  # fmt: skip
            query = {"clogId": ["c"], "attributes": {"v": wanted}}
            runs = result_of(await client.call_tool("list_runs", query))["runs"]
            assert sorted(run["runId"] for run in runs) == found


async def test_a_method_is_a_tool_with_a_schema(a: McpWorld) -> None:
    async with a.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        repeat = tools["parrot__repeat"]
        assert (repeat.description or "").startswith("Repeat a text.")
        payload = repeat.input_schema["properties"]["payload"]
        assert payload["properties"]["times"]["type"] == "integer"
        assert {"clogId", "method"}.isdisjoint(repeat.input_schema["properties"])
        result = await client.call_tool("parrot__repeat", {"payload": {"text": "ab", "times": 2}, "sessionId": "s"})
        assert result_of(result) == {"answer": "abab"}
        added = {"sessionId": "s", "payload": 2, "idempotencyKey": "k"}
        assert [result_of(await client.call_tool("c__add", added)) for _ in "12"] == [{"answer": 2}] * 2
        error = error_of(await client.call_tool("c__add", {"method": "refuse"}))
        assert "has no argument 'method'" in error["message"]


async def test_a_methods_tool_is_for_runs_of_its_clog_only(a: McpWorld) -> None:
    await some_runs(a)
    async with a.client() as client:
        assert result_of(await client.call_tool("c__echo", {"runId": "r", "payload": 1})) == {"answer": 1}
        error = error_of(await client.call_tool("parrot__repeat", {"runId": "r", "payload": 1}))
        assert (error["code"], error["message"]) == ("run_not_found", "there is no run 'r'")


async def test_a_method_that_a_clog_does_not_allow_is_not_a_tool_and_cannot_be_called(a: McpWorld) -> None:
    await a.w.ocean.create_run(session_id="s", clog_id="closed", run_id="mine")
    async with a.client() as client:
        assert "closed__peek" not in {tool.name for tool in (await client.list_tools()).tools}
        calls: list[tuple[str, dict[str, Any]]] = [
            ("call_method", {"runId": "mine", "method": "peek"}),
            ("call_method", {"clogId": "closed", "method": "peek", "sessionId": "s"}),
            ("create_run", {"sessionId": "s", "clogId": "closed"}),
            ("signal_run", {"runId": "mine"}),
            ("cancel_run", {"runId": "mine"}),
            ("pause_run", {"runId": "mine"}),
        ]
        for name, arguments in calls:
            error = error_of(await client.call_tool(name, arguments))
            assert (error["code"], error["details"]["allows"]) == ("not_generic", [])
        assert result_of(await client.call_tool("get_run", {"runId": "mine"}))["clogId"] == "closed"


async def test_a_methods_refusal_is_returned_unchanged(a: McpWorld) -> None:
    async with a.client() as client:
        error = error_of(await client.call_tool("c__refuse", {"sessionId": "s", "payload": "x"}))
    assert (error["code"], error["httpStatus"], error["details"]) == ("own_code", 422, {"own_key": "x"})
    assert [event.type for event in await a.w.ocean.read_events()] == ["refused", "call.committed"]


async def test_an_unexpected_error_does_not_reveal_its_cause(a: McpWorld) -> None:
    async with a.client() as client:
        error = error_of(await client.call_tool("parrot__repeat", {"payload": "no object"}))
    assert "string indices" not in json.dumps(error)


async def test_the_error_for_an_unknown_tool_suggests_the_nearest_name(a: McpWorld) -> None:
    async with a.client() as client:
        with pytest.raises(MCPError, match="there is no tool 'get_runs'; did you mean 'get_run'"):
            await client.call_tool("get_runs", {})


async def test_a_change_is_advanced_after_the_result() -> None:
    async with mcp_world(poke_ms=500) as a, a.client() as client:
        create = {"sessionId": "s", "clogId": "c", "runId": "r", "input": {"done": 1}}
        assert result_of(await client.call_tool("create_run", create))["status"] in ("pending", "active", "done")
        types = [event.type async for event in a.w.ocean.follow("r")]
        assert types[-1] == "run.done"


def slow(started: anyio.Event, proceed: anyio.Event) -> Clog:
    clog = Clog("slow")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        started.set()
        await proceed.wait()
        return Done("late")

    return clog


WAITED_FOR = {"sessionId": "s", "clogId": "slow", "runId": "r", "input": {}, "waitMs": 20_000}


async def test_waiting_calls_return_when_the_server_stops() -> None:
    started, proceed = anyio.Event(), anyio.Event()
    async with mcp_world([slow(started, proceed)]) as a, a.client() as client, anyio.create_task_group() as tasks:
        results: list[Any] = []

        async def create() -> None:
            results.append(result_of(await client.call_tool("create_run", WAITED_FOR)))

        tasks.start_soon(create)
        await started.wait()
        a.app.state.stopping.set()
        while not results:
            await anyio.lowlevel.checkpoint()
        assert (results[0]["runId"], results[0]["status"]) == ("r", "active")
        proceed.set()


async def test_a_cancelled_call_does_not_stop_its_work() -> None:
    started, proceed = anyio.Event(), anyio.Event()
    async with mcp_world([slow(started, proceed)]) as a, a.client() as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "create_run", WAITED_FOR)
            await started.wait()
            tasks.cancel_scope.cancel()
        proceed.set()
        types = [event.type async for event in a.w.ocean.follow("r")]
        assert types.count("tick.committed") == 1
        assert "tick.restarted" not in types


async def test_runs_are_resources(a: McpWorld) -> None:
    await some_runs(a)
    await a.w.ocean.create_run(session_id="s", clog_id="c", run_id="a/b c")
    async with a.client() as client:
        listed = (await client.list_resources()).resources
        assert {each.name for each in listed} == {"r", "failed", "a/b c"}
        for each in listed:
            read = (await client.read_resource(each.uri)).contents[0]
            assert json.loads(read.text)["runId"] == each.name  # type: ignore[union-attr]
        events = (await client.read_resource("ocean://runs/r/events")).contents[0]
        assert json.loads(events.text)["events"][1]["type"] == "said"  # type: ignore[union-attr]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates][-1] == "ocean://runs/{runId}/explain"
        for uri, message in (
            ("ocean://runs/no", "there is no run 'no'"),
            ("ocean://x", "no resource"),
            ("a:b", "no re"),
        ):
            with pytest.raises(MCPError, match=message):
                await client.read_resource(uri)


async def test_resources_are_listed_page_by_page(a: McpWorld) -> None:
    for n in range(60):
        await a.w.ocean.create_run(session_id="s", clog_id="c", run_id=f"r{n}")
    async with a.client() as client:
        first = await client.list_resources()
        rest = await client.list_resources(cursor=first.next_cursor)
    assert (len(first.resources), len(rest.resources), rest.next_cursor) == (50, 10, None)


async def test_a_clog_cannot_mount_a_route_at_the_mcp_path() -> None:
    clog = Clog("greedy")

    @clog.route("POST", "/mcp/x", access="open")
    async def handler(incoming: Any) -> Reply:
        return Reply(1)

    async with world(clogs=[clog]) as w:
        with pytest.raises(InvalidValue, match="Ocean's own routes"):
            async with mounted(w.ocean, make_app(w.ocean)):
                pass


def test_the_document_names_every_tool_and_its_scope() -> None:
    rows = [line for line in (ROOT / "docs" / "mcp.md").read_text().splitlines() if line.startswith("| `")]
    for tool in TOOLS:
        (row,) = [row for row in rows if f"`{tool.name}`" in row]
        assert row.endswith(f"| `{tool.scope}` |")


async def test_an_agent_sees_where_a_run_has_failed() -> None:
    clog = Clog("shop")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        charge()

    async with mcp_world(more=[clog]) as a:
        await a.w.ocean.create_run(session_id="s", clog_id="shop", run_id="r", input=1)
        await a.w.drain()
        async with a.client() as client:
            run = result_of(await client.call_tool("get_run", {"runId": "r"}))
            explained = result_of(await client.call_tool("explain_run", {"runId": "r"}))
            (listed,) = result_of(await client.call_tool("list_runs", {"clogId": ["shop"]}))["runs"]
    assert place_in(run["error"]) == (NAME, line_of("charge"), "charge")
    assert "Traceback" in run["error"]["where"]["traceback"]
    assert explained["error"] == run["error"]
    assert f"at {NAME}:{line_of('charge')} in charge" in explained["holds"][0]["message"]
    assert "traceback" not in listed["error"]["where"]
