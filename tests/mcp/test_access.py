"""Access to tools: the same keys and rules as over HTTP."""

from typing import Any

import httpx2
import pytest

from ocean.mcp.tools import TOOLS
from ocean.state.records import KEY_SCOPES, KeyScope
from tests.http.kit import end_incomplete
from tests.mcp.kit import URL, McpWorld, error_of, result_of
from tests.mcp.test_tools import CALLS, some_runs
from tests.stores.dump import changed, dump, of_sqlite

pytestmark = pytest.mark.anyio

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def tables(a: McpWorld) -> Any:
    return await of_sqlite(a.w.ocean._store).read(dump)


@pytest.mark.parametrize("scope", KEY_SCOPES)
async def test_a_key_sees_and_may_use_only_the_tools_of_its_scope(a: McpWorld, scope: KeyScope) -> None:
    await some_runs(a)
    await end_incomplete(a.w, "messy")
    key = await a.key(scope)
    may = {tool.name for tool in TOOLS if scope in (tool.scope, "admin")}
    async with a.client(key) as client:
        shown = {tool.name for tool in (await client.list_tools()).tools}
        assert shown & {tool.name for tool in TOOLS} == may
        assert ("c__echo" in shown) == (scope in ("signal", "admin"))
        for tool in sorted(TOOLS, key=lambda tool: [*CALLS].index(tool.name)):
            before = await tables(a)
            if tool.name in may:
                result_of(await client.call_tool(tool.name, CALLS[tool.name]))
            else:
                error = error_of(await client.call_tool(tool.name, CALLS[tool.name]))
                assert (error["code"], error["details"]) == ("wrong_scope", {"scope": tool.scope})
                assert changed(before, await tables(a)) == set()


async def test_a_key_without_the_scope_learns_nothing_from_a_methods_tool(a: McpWorld) -> None:
    await some_runs(a)
    async with a.client(await a.key("read")) as client:
        for run_id in ("r", "nowhere"):
            assert error_of(await client.call_tool("parrot__repeat", {"runId": run_id}))["code"] == "wrong_scope"


async def post(a: McpWorld, key: str | None = None, method: str = "POST", url: str = URL, **headers: str) -> Any:
    async with a.http(key, **(ACCEPT | headers)) as http:
        return await http.request(method, url, json=LIST)


async def test_a_request_without_a_valid_key_is_not_read(a: McpWorld) -> None:
    assert (await post(a)).status_code == 200
    created = await a.w.ocean.create_api_key("ann", ["admin"])
    assert (await post(a, created.key)).status_code == 200
    for key in (None, "ocean_000000000000_" + "x" * 43, "letmein"):
        response: httpx2.Response = await post(a, key)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "not_authenticated")
        assert response.headers["www-authenticate"] == 'Bearer realm="ocean"'
    await a.w.ocean.revoke_api_key(created.info.key_id)
    assert (await post(a, created.key)).status_code == 401


async def test_without_keys_only_this_machine_has_access(a: McpWorld) -> None:
    refusals = [
        await post(a, Host="ocean.example"),
        await post(a, Origin="https://page.example"),
        await post(a, **{"X-Forwarded-For": "10.0.0.1"}),
    ]
    assert [(response.status_code, response.json()["error"]["code"]) for response in refusals] == [
        (421, "not_our_host"),
        (403, "foreign_origin"),
        (401, "not_authenticated"),
    ]


async def test_each_call_is_authorized_by_its_own_request(a: McpWorld) -> None:
    """Two keys on one client: the first is not remembered."""
    strong, weak = await a.key("admin"), await a.key("read")
    async with a.client(strong) as client:
        result_of(await client.call_tool("create_run", CALLS["create_run"]))
    async with a.client(weak) as client:
        assert error_of(await client.call_tool("create_run", CALLS["create_run"]))["code"] == "wrong_scope"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_there_is_no_session_to_listen_to_or_to_end(a: McpWorld, method: str) -> None:
    response = await post(a, method=method)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_a_body_over_the_limit_is_refused(a: McpWorld) -> None:
    async with a.http(**ACCEPT) as http:
        response = await http.post(URL, content=b" " * 3_000_000, headers={"content-type": "application/json"})
    assert response.status_code == 413


async def test_a_key_for_some_sessions_finds_nothing_of_the_others(a: McpWorld) -> None:
    make = a.w.ocean.create_run
    await make(session_id="mine", clog_id="c", run_id="own", input={"say": "hello"})
    await make(session_id="theirs", clog_id="c", run_id="secret", input={"say": "hush"})
    await make(session_id="theirs", clog_id="parrot", run_id="bird")
    await a.w.drain()
    key = await a.key("admin", sessions=["mine"])
    async with a.client(key) as client:
        runs = result_of(await client.call_tool("list_runs", {}))["runs"]
        assert [run["runId"] for run in runs] == ["own"]
        assert [each.name for each in (await client.list_resources()).resources] == ["own"]
        missing = {}
        for run_id in ("secret", "bird", "nowhere"):
            for name in ("get_run", "signal_run", "cancel_run", "pause_run", "explain_run", "read_events", "c__echo"):
                error = error_of(await client.call_tool(name, {"runId": run_id}))
                error.pop("requestId")
                missing[run_id, name] = error
                assert error["code"] == "run_not_found"
                # The error for a run of another session equals the one for a run that does not exist.
                assert str(error).replace(run_id, "X") == str(missing["secret", name]).replace("secret", "X")
        assert result_of(await client.call_tool("c__echo", {"runId": "own", "payload": 1})) == {"answer": 1}
        for name in ("advance", "read_events"):
            assert error_of(await client.call_tool(name, {}))["code"] == "key_is_limited"
        events = result_of(await client.call_tool("read_events", {"sessionId": "mine"}))["events"]
        assert {event["runId"] for event in events} == {"own"}
        create = {"sessionId": "theirs", "clogId": "c"}
        assert error_of(await client.call_tool("create_run", create))["code"] == "session_not_found"


async def test_the_actor_of_the_key_is_named_in_the_events(a: McpWorld) -> None:
    async with a.client(await a.key("signal")) as client:
        created = result_of(await client.call_tool("create_run", {"sessionId": "s", "clogId": "c"}))
    (event,) = await a.w.ocean.read_events(created["runId"])
    assert event.actor == "ann"


async def test_idempotency_keys_belong_to_the_actor(a: McpWorld) -> None:
    create = {"sessionId": "s", "clogId": "c", "idempotencyKey": "k"}
    other = (await a.w.ocean.create_api_key("bob", ["signal"])).key
    run_ids = []
    for key in (await a.key("signal"), other):
        async with a.client(key) as client:
            run_ids.append(result_of(await client.call_tool("create_run", create))["runId"])
    assert run_ids[0] != run_ids[1]
