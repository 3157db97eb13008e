"""Runs over HTTP: each route compared with its verb in Python."""

from typing import Any

import pytest

from ocean import InvalidValue, Key, RetryPolicy, RunStatus, Within
from ocean.http.framework.responses import record
from tests.http.kit import AppWorld, app_world, end_incomplete, error_of, messy_clog
from tests.lifecycle.acting import dump, look

pytestmark = pytest.mark.anyio

NEW = {"sessionId": "s", "clogId": "c"}


async def test_a_run_is_created_with_every_option(h: AppWorld) -> None:
    response = await h.post(
        "/v1/runs",
        NEW
        | {
            "clogId": "x",
            "runId": "r-1",
            "input": {"snake_key": [1]},
            "retry": {"maxAttempts": 5, "delaysMs": [10, 20.0], "maxElapsedMs": None, "jitter": 0.5},
            "priority": 2,
            "attributes": {"my_name": "a", "n": 1.5, "ok": True},
            "deadlineAt": 2 * 10**12,
            "dedupeKey": "d-1",
            "dedupeMs": 1_000,
            "concurrencyKeys": ["k1", {"name": "k2", "hold": "run"}],
            "queue": "gpu",
            "rateKey": "rate",
            "rateLimit": 1,
            "ratePerMs": 1_000,
        },
    )
    assert response.status_code == 201, response.text
    info = await look(h.w, "r-1")
    assert response.json() == record(info)
    assert (info.priority, info.attributes, info.deadline_at, info.dedupe_key) == (
        2,
        {"my_name": "a", "n": 1.5, "ok": True},
        2 * 10**12,
        "d-1",
    )
    assert (info.concurrency_keys, info.queue, info.max_attempts) == ((Key("k1"), Key("k2", "run")), "gpu", 5)
    same = await h.w.ocean.create_run(
        run_id="r-1",
        session_id="s",
        clog_id="x",
        input={"snake_key": [1]},
        retry=RetryPolicy(max_attempts=5, delays_ms=(10, 20), jitter=0.5),
        priority=2,
        attributes={"my_name": "a", "n": 1.5, "ok": True},
        deadline_at=2 * 10**12,
        dedupe_key="d-1",
        dedupe_ms=1_000,
        concurrency_keys=["k1", Key("k2", "run")],
        queue="gpu",
        rate_key="rate",
        rate_limit=1,
        rate_per_ms=1_000,
    )
    assert same.run_id == "r-1", "the same arguments in Python create the same run"


async def test_a_debounced_creation_is_supported(h: AppWorld) -> None:
    body = NEW | {"input": 1, "dedupeKey": "d", "debounceMs": 100, "debounceMaxMs": 500}
    first, second = [(await h.post("/v1/runs", body)).json() for _ in "ab"]
    assert first["runId"] == second["runId"]
    assert first["wakeAt"] == h.w.clock.now() + 100


async def test_a_null_input_differs_from_no_input(h: AppWorld) -> None:
    assert (await h.post("/v1/runs", NEW)).json()["status"] == "idle"
    assert (await h.post("/v1/runs", NEW | {"input": None})).json()["status"] == "pending"


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        ({"sessionId": None}, "invalid_body", "sessionId: "),
        ({"session_id": "s"}, "invalid_body", "session_id: "),
        ({"priority": 10}, "invalid_value", "priority must be an integer from 0"),
        ({"priority": "1"}, "invalid_body", "priority: "),
        ({"retry": {"maxAttempts": 0}}, "invalid_value", "retry.max_attempts"),
        ({"retry": {"attempts": 1}}, "invalid_body", "retry.attempts: "),
        ({"retry": {"delaysMs": []}}, "invalid_value", "retry.delays_ms"),
        ({"attributes": {"a": []}}, "invalid_value", "attribute 'a' must be"),
        ({"concurrencyKeys": ["a", "a"]}, "invalid_value", "concurrency_keys must not name a key twice"),
        ({"concurrencyKeys": [7]}, "invalid_body", "concurrencyKeys.0: "),
        ({"dedupeMs": 5}, "invalid_value", "dedupe_ms needs a dedupe_key"),
        ({"rateKey": "r"}, "invalid_value", "rate_key, rate_limit and rate_per_ms must be given together"),
        ({"debounceMs": 5}, "invalid_value", "debounce_ms needs"),
        ({"deadlineAt": -1}, "invalid_value", "deadline_at must be"),
        ({"runId": ""}, "invalid_value", "run_id must be"),
    ],
    ids=str,
)
async def test_an_invalid_creation_names_the_field_and_writes_nothing(
    h: AppWorld, more: Any, code: str, message: str
) -> None:
    before = await dump(h.w)
    response = await h.post("/v1/runs", NEW | more)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, code)
    assert error["message"].startswith(message)
    assert await dump(h.w) == before


async def test_another_body_under_a_used_id_is_refused(h: AppWorld) -> None:
    await h.post("/v1/runs", NEW | {"runId": "r", "dedupeKey": "d"})
    for more, code in (
        ({"runId": "r", "input": 1}, "run_exists"),
        ({"dedupeKey": "d", "input": 1}, "dedupe_key_reused"),
    ):
        response = await h.post("/v1/runs", NEW | more)
        assert (response.status_code, error_of(response)["code"]) == (409, code)


async def test_a_run_is_read_and_deleted(h: AppWorld) -> None:
    run_id = await h.new_run({"done": {"a_b": 1}})
    await h.w.drain()
    assert await h.get_json(f"/v1/runs/{run_id}") == record(await look(h.w, run_id))
    assert (await h.http.delete(f"/v1/runs/{run_id}")).json() == {"deleted": 1}
    for response in (await h.get(f"/v1/runs/{run_id}"), await h.http.delete(f"/v1/runs/{run_id}")):
        assert (response.status_code, error_of(response)["code"]) == (404, "run_not_found")
        assert error_of(response)["details"] == {"runId": run_id}


async def test_a_run_named_like_a_verb_can_be_reached(h: AppWorld) -> None:
    await h.new_run(run_id="cancel")
    assert (await h.get_json("/v1/runs/cancel"))["runId"] == "cancel"
    assert (await h.post("/v1/runs/cancel/pause")).json()["paused"] is True


@pytest.mark.parametrize(
    ("query", "filters"),
    [
        ({}, {}),
        ({"clogId": "c"}, {"clog_id": "c"}),
        ({"clogId": ["c", "x"], "order": "oldest"}, {"clog_id": ["c", "x"], "order": "oldest"}),
        ({"status": ["done", "idle"]}, {"status": ["done", "idle"]}),
        ({"sessionId": "t"}, {"session_id": "t"}),
        ({"parentRunId": "nobody"}, {"parent_run_id": "nobody"}),
        ({"createdFrom": 1_700_000_000_010}, {"created_from": 1_700_000_000_010}),
        ({"createdUntil": 1_700_000_000_010}, {"created_until": 1_700_000_000_010}),
        ({"endedFrom": 1, "endedUntil": 2_000_000_000_000}, {"ended_from": 1, "ended_until": 2_000_000_000_000}),
        ({"clogId": "c", "attr.n": "2"}, {"clog_id": "c", "attributes": {"n": 2}}),
        ({"clogId": "c", "attr.n": ["1", "2"]}, {"clog_id": "c", "attributes": {"n": [1, 2]}}),
        ({"clogId": "c", "attr.t": '"2"'}, {"clog_id": "c", "attributes": {"t": "2"}}),
        ({"clogId": "c", "attr.t": "b"}, {"clog_id": "c", "attributes": {"t": "b"}}),
        ({"clogId": "c", "attr.b": "true"}, {"clog_id": "c", "attributes": {"b": True}}),
        ({"clogId": "c", "attr.n.gte": "1.5"}, {"clog_id": "c", "attributes": {"n": Within(gte=1.5)}}),
        (
            {"clogId": "c", "attr.n.gt": "0", "attr.n.lte": "2", "order": "descending"},
            {"clog_id": "c", "attributes": {"n": Within(gt=0, lte=2)}, "order": "descending"},
        ),
        ({"limit": 2}, {"limit": 2}),
    ],
    ids=str,
)
async def test_runs_are_found_as_in_python(h: AppWorld, query: Any, filters: Any) -> None:
    for n, text in enumerate(("a", "b", "2")):
        await h.new_run({"done": n}, attributes={"n": n, "t": text, "b": n == 1})
        h.w.clock.advance(7)
    await h.w.drain()
    await h.new_external_run()
    await h.w.ocean.create_run(session_id="t", clog_id="c")
    page = await h.w.ocean.list_runs(**filters)
    found = await h.get_json("/v1/runs", **query)
    assert found == {"runs": [record(run) for run in page.runs], "nextCursor": page.next_cursor, "count": None}
    if page.next_cursor is not None:
        rest = await h.get_json("/v1/runs", **query, cursor=page.next_cursor, countUpTo=4)
        assert rest["runs"], "the cursor continues"
        assert rest["count"] == {"count": 4, "isCapped": True}


@pytest.mark.parametrize(
    ("query", "code", "named"),
    [
        ("limit=0", "invalid_query", "limit"),
        ("limit=1001", "invalid_query", "limit"),
        ("limit=ten", "invalid_query", "limit"),
        ("limit=1_0", "invalid_query", "limit"),
        ("limit=%D9%A1", "invalid_query", "limit"),
        ("limit=1.0", "invalid_query", "limit"),
        ("limit=", "invalid_query", "limit"),
        ("limit=1&limit=2", "invalid_query", "limit"),
        ("clog_id=c", "invalid_query", "clog_id"),
        ("surprise=1", "invalid_query", "surprise"),
        ("attributes=1", "invalid_query", "attributes"),
        ("status=gone", "invalid_query", "status.0"),
        ("order=random", "invalid_query", "order"),
        ("createdFrom=soon", "invalid_query", "createdFrom"),
        ("createdFrom=9999999999999999999999", "invalid_query", "createdFrom"),
        ("countUpTo=0", "invalid_query", "countUpTo"),
        ('clogId=c&attr.a="x', "invalid_query", "attr.a"),
        ("clogId=c&attr.a=1&attr.a.gt=1", "invalid_query", "attr.a"),
        ("clogId=c&attr.a.gt=1&attr.a.gt=2", "invalid_query", "attr.a.gt"),
        ("attr.a=1", "invalid_value", "clog_id"),
        ("clogId=c&attr.a.gt=1&attr.b.lt=1", "invalid_value", "range"),
        ("clogId=c&attr.=1", "invalid_value", "name"),
        ("clogId=", "invalid_value", "clog_id"),
        ("sessionId=%00", "invalid_value", "session_id"),
        ("cursor=none", "bad_cursor", "cursor"),
        ("createdFrom=2&createdUntil=1", "invalid_value", "created_from"),
        ("order=ascending", "invalid_value", "order"),
    ],
)
async def test_an_invalid_query_names_the_field(h: AppWorld, query: str, code: str, named: str) -> None:
    response = await h.http.get(f"/v1/runs?{query}")
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, code)
    assert named in error["message"]
    if code == "invalid_query":
        assert [each["field"] for each in error["details"]["fields"]] == [named]


async def test_a_route_without_a_query_takes_none(h: AppWorld) -> None:
    response = await h.post("/v1/advance?budgetMs=1")
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_query")


async def test_a_signal_is_acknowledged_with_its_receipt(h: AppWorld) -> None:
    run_id = await h.new_run()
    response = await h.post(f"/v1/runs/{run_id}/signal", {"input": {"say": {"a_b": 1}}, "signalId": "m-1"})
    assert response.status_code == 202
    again = await h.w.ocean.signal(run_id, {"say": {"a_b": 1}}, signal_id="m-1")
    assert response.json() == record(again)
    assert (await h.post(f"/v1/runs/{run_id}/signal")).json()["number"] == 2, "a signal needs no input"
    later = h.w.clock.now() + 1_000
    await h.post(f"/v1/runs/{run_id}/signal", {"input": None, "deliverAt": later})
    inputs = await h.get_json(f"/v1/runs/{run_id}/inputs")
    assert inputs == {
        "inputs": [record(each) for each in await h.w.ocean.list_inputs(run_id)],
        "nextCursor": None,
    }
    assert [(each["body"], each["availableAt"] == later) for each in inputs["inputs"]] == [
        ({"say": {"a_b": 1}}, False),
        (None, False),
        (None, True),
    ]


async def test_signals_are_refused_as_in_python(h: AppWorld) -> None:
    run_id = await h.new_run({"done": 1})
    busy = await h.post(f"/v1/runs/{run_id}/signal", {"ifIdle": True})
    assert (busy.status_code, error_of(busy)["code"], error_of(busy)["retryable"]) == (409, "run_busy", True)
    assert error_of(busy)["details"].keys() >= {"status", "lockedBy", "lockExpiresAt"}
    await h.post(f"/v1/runs/{run_id}/signal", {"signalId": "m", "input": 1})
    other = await h.post(f"/v1/runs/{run_id}/signal", {"signalId": "m", "input": 2})
    assert error_of(other)["code"] == "signal_id_reused"
    await h.w.drain()
    ended = await h.post(f"/v1/runs/{run_id}/signal", {"input": 1})
    assert (ended.status_code, error_of(ended)["code"]) == (409, "run_ended")
    assert (await h.post("/v1/runs/none/signal", {"input": 1})).status_code == 404


async def test_a_method_is_called_on_a_run_and_on_a_clog(h: AppWorld) -> None:
    run_id = await h.new_run()
    for payload in ({"a_b": [1, None]}, None, "ä", 1.5):
        response = await h.post(f"/v1/runs/{run_id}/call/echo", {"payload": payload})
        assert (response.status_code, response.json()) == (200, {"answer": payload})
    assert (await h.post(f"/v1/runs/{run_id}/call/echo")).json() == {"answer": None}
    for wanted in (2, 4):
        response = await h.post("/v1/clogs/c/call/add", {"sessionId": "s", "payload": 2})
        assert response.json() == {"answer": wanted}
    assert await h.w.ocean.call_clog(clog_id="c", session_id="s", method="add", payload=0) == 4


async def test_a_methods_own_refusal_is_returned_unchanged(h: AppWorld) -> None:
    run_id = await h.new_run()
    response = await h.post(f"/v1/runs/{run_id}/call/refuse", {"payload": {"k_k": 1}})
    error = error_of(response)
    assert (response.status_code, error["code"], error["details"]) == (422, "own_code", {"own_key": {"k_k": 1}})
    assert len(await h.w.ocean.read_events(run_id, types=["refused"])) == 1
    for path, code in (
        (f"/v1/runs/{run_id}/call/none", "unknown_method"),
        ("/v1/runs/none/call/echo", "run_not_found"),
        ("/v1/clogs/none/call/echo", "unknown_clog"),
    ):
        refused = await h.post(path)
        assert (refused.status_code, error_of(refused)["code"]) == (404, code)


async def test_a_run_is_paused_resumed_cancelled_and_retried(h: AppWorld) -> None:
    run_id = await h.new_run({"wait": 1_000})
    path = f"/v1/runs/{run_id}"
    for verb, paused in (("pause", True), ("resume", False)):
        response = await h.post(f"{path}/{verb}")
        assert (response.status_code, response.json()["paused"]) == (200, paused)
        assert response.json() == record(await look(h.w, run_id))
    assert error_of(await h.post(f"{path}/retry"))["code"] == "run_not_failed"
    ended = await h.post(f"{path}/cancel", {"reason": "enough"})
    assert (ended.json()["status"], ended.json()["error"]["code"]) == ("failed", "cancelled")
    assert "enough" in str(ended.json()["error"])
    again = await h.post(f"{path}/retry")
    assert (again.status_code, again.json()["retryOf"]) == (201, run_id)
    assert again.json() == record(await h.w.ocean.retry_run(run_id))
    for verb in ("pause", "resume", "cancel", "retry"):
        assert (await h.post(f"/v1/runs/none/{verb}")).status_code == 404
        assert error_of(await h.post(f"{path}/{verb}", {"why": 1}))["code"] == "invalid_body"


async def test_ticks_inputs_and_the_explanation_are_shown(h: AppWorld) -> None:
    run_id = await h.new_run({"more": {"more": {"wait": 500}}})
    await h.w.drain()
    ticks = await h.get_json(f"/v1/runs/{run_id}/ticks", limit=2)
    assert ticks == {"ticks": [record(each) for each in await h.w.ocean.list_ticks(run_id, limit=2)], "nextCursor": 2}
    rest = await h.get_json(f"/v1/runs/{run_id}/ticks", after=2, limit=2)
    assert ([each["tick"] for each in rest["ticks"]], rest["nextCursor"]) == ([3], None)
    explained = await h.get_json(f"/v1/runs/{run_id}/explain")
    assert explained == record(await h.w.ocean.explain(run_id))
    assert explained["holds"][0]["code"] == "waiting"
    for what in ("ticks", "inputs", "explain", "events"):
        missing = await h.get(f"/v1/runs/none/{what}")
        assert (missing.status_code, error_of(missing)["code"]) == (404, "run_not_found")
    assert (await h.get_json(f"/v1/runs/{await h.new_run()}/inputs"))["inputs"] == []


async def test_python_refuses_what_http_refuses(h: AppWorld) -> None:
    with pytest.raises(InvalidValue, match="dedupe_ms needs"):
        await h.w.ocean.create_run(session_id="s", clog_id="c", dedupe_ms=5)
    assert (await look(h.w, await h.new_run())).status is RunStatus.IDLE


async def test_a_run_that_ended_incomplete_is_listed_and_its_last_tick_is_called_again() -> None:
    async with app_world(more=[messy_clog()]) as h:
        await h.new_run({"fail": "no"}, run_id="failed")
        shown = record(await end_incomplete(h.w, "messy"))
        assert (shown["status"], shown["endIncomplete"], shown["endAttempt"]) == ("failed", True, 1)
        assert await h.get_json("/v1/runs/messy") == shown
        listed = await h.get_json("/v1/runs", endIncomplete="true", countUpTo=5)
        assert (listed["runs"], listed["count"]) == ([shown], {"count": 1, "isCapped": False})
        others = await h.get_json("/v1/runs", endIncomplete="false")
        assert [run["runId"] for run in others["runs"]] == ["failed"]
        for wrong in ("1", "True", ""):
            assert error_of(await h.get("/v1/runs", endIncomplete=wrong))["code"] == "invalid_query"
        again = await h.post("/v1/runs/messy/retry-end")
        assert (again.status_code, again.json()["status"], again.json()["endIncomplete"]) == (200, "pending", False)
        await h.w.drain()
        ended = await h.get_json("/v1/runs/messy")
        assert (ended["status"], ended["endIncomplete"], ended["tick"]) == ("failed", False, shown["tick"])
        for path, status, code in (
            ("messy", 409, "run_not_incomplete"),
            ("failed", 409, "run_not_incomplete"),
            ("none", 404, "run_not_found"),
        ):
            refused = await h.post(f"/v1/runs/{path}/retry-end")
            assert (refused.status_code, error_of(refused)["code"]) == (status, code)
        assert error_of(await h.post("/v1/runs/messy/retry-end", {"why": 1}))["code"] == "invalid_body"


async def test_the_last_ticks_of_all_runs_that_ended_incomplete_are_called_again() -> None:
    async with app_world(more=[messy_clog()]) as h:
        await h.new_run({"fail": "no"})
        for run_id in ("a", "b"):
            await end_incomplete(h.w, run_id)
        assert error_of(await h.post("/v1/runs/retry-end"))["code"] == "invalid_value"
        assert error_of(await h.post("/v1/runs/retry-end", {"endIncomplete": False}))["code"] == "invalid_value"
        assert (await h.post("/v1/runs/retry-end", {"clogId": ["c"]})).json()["seen"] == 0
        done = (await h.post("/v1/runs/retry-end", {"clogId": ["messy"]})).json()
        assert (done["seen"], done["done"], done["refused"]) == (2, 2, 0)
        await h.w.drain()
        assert (await h.get_json("/v1/runs", endIncomplete="true"))["runs"] == []
