"""Routes that do not concern a single run: advance, sessions, clogs, tools, keys, counters, bulk verbs, health."""

from typing import Any

import pytest

from ocean.http.framework.responses import record
from tests.http.kit import AppWorld, app_world, error_of
from tests.lifecycle.acting import dump, look

pytestmark = pytest.mark.anyio


async def test_a_poke_advances_due_runs_and_returns_the_next_wake_time(h: AppWorld) -> None:
    run_id = await h.new_run({"wait": 500})
    await h.new_run({"done": 1}, run_id="second", priority=9)
    one = (await h.post("/v1/advance", {"maxTicks": 1})).json()
    assert (one["advanced"], one["dueNow"], one["dryRun"]) == (1, 1, None)
    response = await h.post("/v1/advance", {"runId": "second", "budgetMs": 50})
    assert response.json()["outcomes"] == [{"runId": "second", "tick": 1, "outcome": "done", "status": "done"}]
    idle = (await h.post("/v1/advance")).json()
    assert idle == {
        "advanced": 0,
        "outcomes": [],
        "dueNow": 0,
        "nextWakeAt": h.w.clock.now() + 500,
        "oldestDueAgeMs": 0,
        "unclaimable": 0,
        "dryRun": None,
    }
    assert (await look(h.w, run_id)).status == "waiting"


@pytest.mark.parametrize(
    ("input", "outcome"),
    [
        ({"done": {"a_b": 1}}, {"type": "done", "output": {"a_b": 1}}),
        ({"fail": "no"}, {"type": "failed", "error": {"code": "failed", "message": "no", "details": None}}),
        ({"wait": 5}, {"type": "wait", "until": None, "forMs": 5}),
        ({"say": {"c_d": 2}}, {"type": "ok"}),
    ],
    ids=str,
)
async def test_a_dry_run_shows_the_next_tick_and_changes_nothing(h: AppWorld, input: Any, outcome: Any) -> None:
    run_id = await h.new_run(input)
    before = await dump(h.w)
    shown = (await h.post("/v1/advance", {"runId": run_id, "dryRun": True})).json()["dryRun"]
    assert (shown["runId"], shown["tick"], shown["outcome"]) == (run_id, 1, outcome)
    assert [each["payload"] for each in shown["events"]] == ([input["say"]] if "say" in input else [])
    assert await dump(h.w) == before
    for body in ({"dryRun": True}, {"dryRun": True, "runId": run_id, "maxTicks": 1}):
        assert error_of(await h.post("/v1/advance", body))["code"] == "invalid_value"


@pytest.mark.parametrize("body", [{"budgetMs": -1}, {"budgetMs": 60_001}, {"maxTicks": -1}, {"dryRun": "yes"}], ids=str)
async def test_a_wrong_poke_names_its_field(h: AppWorld, body: Any) -> None:
    error = error_of(await h.post("/v1/advance", body))
    assert (error["code"], error["details"]["fields"][0]["field"]) == ("invalid_body", next(iter(body)))
    assert (await h.post("/v1/advance", {"runId": "none"})).status_code == 404


async def test_a_session_is_removed_with_its_runs(h: AppWorld) -> None:
    run_id = await h.new_run()
    await h.new_run()
    assert (await h.http.delete("/v1/sessions/s")).json() == {"deleted": 2}
    assert await h.w.ocean.get_run(run_id) is None
    assert (await h.get_json("/v1/sessions/s/events"))["events"], "events stay"


async def test_clogs_are_listed_paused_and_resumed(h: AppWorld) -> None:
    assert await h.get_json("/v1/clogs") == {"clogs": [record(each) for each in await h.w.ocean.list_clogs()]}
    for verb, paused in (("pause", True), ("resume", False)):
        response = await h.post(f"/v1/clogs/c/{verb}")
        assert (response.json()["clogId"], response.json()["paused"]) == ("c", paused)
        assert (await h.post(f"/v1/clogs/none/{verb}")).status_code == 404


async def test_tools_are_shown_with_their_schemas(h: AppWorld) -> None:
    tools = (await h.get_json("/v1/tools"))["tools"]
    assert [(each["name"], each["inputSchema"]) for each in tools] == [
        (each.name, each.json_schema()) for each in h.w.ocean.list_tools()
    ]
    assert {each["name"] for each in tools if each["reachesOut"]} == {
        each.name for each in h.w.ocean.list_tools() if each.reaches_out
    }


async def test_a_keys_limit_is_set_and_seen_also_with_a_slash_in_its_name(h: AppWorld) -> None:
    for key in ("a", "tenant/7"):
        response = await h.http.put(f"/v1/keys/{key}", json={"limit": 3})
        assert response.json() == {"key": key, "limit": 3, "inUse": 0, "parked": 0}
        assert await h.get_json(f"/v1/keys/{key}") == record(await h.w.ocean.get_key(key))
    first = await h.get_json("/v1/keys", limit=1)
    assert ([each["key"] for each in first["keys"]], first["nextCursor"]) == (["a"], "a")
    rest = await h.get_json("/v1/keys", after="a")
    assert ([each["key"] for each in rest["keys"]], rest["nextCursor"]) == (["tenant/7"], None)
    assert (await h.http.put("/v1/keys/a", json={"limit": -1})).status_code == 400
    assert (await h.http.put("/v1/keys/a", json={})).status_code == 400
    assert (await h.http.put("/v1/keys/", json={"limit": 1})).status_code == 400


async def test_a_counter_is_taken_from_and_reset(h: AppWorld) -> None:
    path = "/v1/counters/daily/cap"
    first, second, third = [await h.post(f"{path}/take", {"n": 2, "limit": 4, "perMs": 1_000}) for _ in "abc"]
    assert [each.json()["ok"] for each in (first, second, third)] == [True, True, False]
    assert third.json() == {"ok": False, "used": 4, "limit": 4, "left": 0, "retryAfterMs": 500}
    unchanged = await h.post(f"{path}/take", {"n": 0, "limit": 4, "perMs": 1_000})
    assert unchanged.json() == record(await h.w.ocean.take("daily/cap", 0, 4, 1_000))
    assert [(await h.http.delete(path)).json() for _ in "ab"] == [{"reset": True}, {"reset": False}]
    assert error_of(await h.post(f"{path}/take", {"n": 5, "limit": 4}))["code"] == "invalid_value"
    assert error_of(await h.post(f"{path}/take", {"refill": "often"}))["code"] == "invalid_body"


async def test_many_runs_are_signalled_cancelled_retried_and_deleted(h: AppWorld) -> None:
    for n in range(4):
        await h.new_run(attributes={"n": n})
    some = {"clogId": ["c"], "attributes": {"n": {"gte": 1}}}
    signal = {"signalId": "m", "input": {"fail": "no"}}
    whole = {"seen": 3, "done": 3, "refused": 0, "errors": {}, "more": False}
    for _ in "ab":
        assert (await h.post("/v1/runs/signal", some | signal)).json() == whole
    await h.w.drain()
    assert (await h.w.ocean.count_runs(status="failed")).count == 3, "each had one signal"
    assert (await h.post("/v1/runs/retry", {"clogId": ["c"]})).json()["done"] == 0, "they had no input"
    await h.new_run({"fail": "no"}, attributes={"n": 9})
    await h.w.drain()
    again = (await h.post("/v1/runs/retry", {"clogId": ["c"], "attributes": {"n": [9, 10]}})).json()
    assert (again["done"], again["refused"]) == (1, 0)
    cancelled = await h.post("/v1/runs/cancel", {"status": ["idle", "pending"], "reason": "late", "most": 1})
    assert cancelled.json() == {"seen": 1, "done": 1, "refused": 0, "errors": {}, "more": True}
    assert (await h.post("/v1/runs/delete", {"everything": True})).json()["done"] == 6
    assert (await h.w.ocean.count_runs()).count == 0


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete", "signal"])
async def test_a_bulk_query_without_filters_is_refused(h: AppWorld, verb: str) -> None:
    await h.new_run()
    before = await dump(h.w)
    for body, code in (
        ({}, "invalid_value"),
        ({"everything": True, "clogId": ["c"]}, "invalid_value"),
        ({"clogId": ["c"], "most": 0}, "invalid_body"),
        ({"clogId": ["c"], "most": 10_001}, "invalid_body"),
        ({"clogId": "c"}, "invalid_body"),
        ({"clogid": ["c"]}, "invalid_body"),
        ({"clogId": ["c"], "attributes": {"a": {"from": 1}}}, "invalid_value"),
        ({"clogId": ["c"], "attributes": {"a": {"gt": []}}}, "invalid_value"),
        ({"clogId": ["c"], "attributes": {"a": None}}, "invalid_value"),
    ):
        response = await h.post(f"/v1/runs/{verb}", body | ({"signalId": "m"} if verb == "signal" else {}))
        assert (response.status_code, error_of(response)["code"]) == (400, code), body
    assert await dump(h.w) == before


async def test_a_bulk_signal_needs_an_id(h: AppWorld) -> None:
    error = error_of(await h.post("/v1/runs/signal", {"clogId": ["c"]}))
    assert [each["field"] for each in error["details"]["fields"]] == ["signalId"]


async def test_health_checks_need_no_key(h: AppWorld) -> None:
    assert await h.get_json("/healthz") == {"status": "ok"}
    assert await h.get_json("/startupz") == {"status": "ok"}
    assert (await h.http.head("/healthz")).status_code == 200


async def test_readiness_fails_while_due_runs_are_not_advanced() -> None:
    async with app_world(ready_age_ms=1_000) as h:
        await h.new_run({"done": 1})
        h.w.clock.advance(1_000)
        assert (await h.get_json("/readyz"))["oldestDueAgeMs"] == 1_000
        h.w.clock.advance(1)
        red = await h.get("/readyz")
        error = error_of(red)
        assert (red.status_code, error["code"], error["retryable"]) == (503, "not_ready", True)
        assert error["details"] == {"dueNow": 1, "oldestDueAgeMs": 1_001, "limitMs": 1_000, "sources": []}
        await h.w.drain()
        assert (await h.get_json("/readyz"))["status"] == "ready"
