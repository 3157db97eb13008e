"""A key for one session learns nothing about other sessions, by any request."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from ocean.http.framework.routing import Op
from ocean.http.routes import TABLE
from tests.http.kit import AppWorld, app_world, error_of

pytestmark = pytest.mark.anyio

STREAM = {"accept": "text/event-stream"}
OF_A_RUN = [op for op in TABLE if "{run_id}" in op.path]


@pytest.fixture
async def h(anyio_backend: Any) -> AsyncIterator[AppWorld]:
    """A client with a key for the session `mine`; the run `theirs` is in another session."""
    async with app_world() as h:
        await h.w.ocean.create_run(session_id="other", clog_id="c", run_id="theirs", input={"say": "secret"})
        await h.w.drain()
        created = await h.w.ocean.create_api_key("ann", ["admin"], sessions=["aside", "mine"])
        h.http.headers["authorization"] = f"Bearer {created.key}"
        yield h


async def response_for(h: AppWorld, op: Op, run_id: str, sent: bytes, **more: Any) -> tuple[int, Any]:
    """Return the response without the run's name."""
    path = op.path.replace("{run_id}", run_id).replace("{method}", "echo")
    headers = {"content-type": "application/json"} | more.pop("headers", {})
    response = await h.http.request(op.method, path, content=sent, headers=headers, **more)
    return response.status_code, without_ids(response, run_id)


def without_ids(response: httpx2.Response, run_id: str) -> str:
    body = response.text.replace(response.headers["x-request-id"], "ID")
    return body.replace(run_id, "RUN")


@pytest.mark.parametrize("op", OF_A_RUN, ids=lambda op: f"{op.method} {op.path}")
async def test_a_run_of_another_session_looks_like_one_that_does_not_exist(h: AppWorld, op: Op) -> None:
    for sent, more in (
        (b"{}", {}),
        (b"{", {}),
        (b'{"unknown": 1}', {}),
        (b'{"signalId": ""}', {}),
        (b"{}", {"params": {"unknown": "1"}}),
        (b"{}", {"headers": {"content-type": "text/plain"}}),
        (b"{}", {"headers": STREAM}),
    ):
        theirs = await response_for(h, op, "theirs", sent, **more)
        assert theirs == await response_for(h, op, "absent", sent, **more)
        assert theirs[0] in (400, 404)
    assert (await h.w.ocean.get_run("theirs")) is not None


async def test_a_lost_response_is_returned_again_after_its_run_was_deleted(h: AppWorld) -> None:
    await h.w.ocean.create_run(session_id="mine", clog_id="c", run_id="own")
    key = {"idempotency-key": "k"}
    responses = [await h.http.delete("/v1/runs/own", headers=key) for _ in range(2)]
    assert [(response.status_code, response.json()) for response in responses] == [(200, {"deleted": 1})] * 2
    assert (await h.http.delete("/v1/runs/theirs", headers=key)).status_code == 404


async def test_the_events_of_a_deleted_run_are_those_of_its_session(h: AppWorld) -> None:
    await h.w.ocean.create_run(session_id="mine", clog_id="c", run_id="own", input={"say": "x"})
    await h.w.drain()
    for run_id in ("own", "theirs"):
        await h.w.ocean.delete_run(run_id)
    for headers in ({}, STREAM):
        response = await h.http.get("/v1/runs/theirs/events", headers=headers)
        assert (response.status_code, error_of(response)["code"]) == (404, "run_not_found")
        response = await h.http.get("/v1/runs/own/events", headers=headers)
        assert response.status_code == 200
        assert '"run.deleted"' in response.text


async def test_a_reused_run_id_shows_only_its_own_events(h: AppWorld) -> None:
    await h.w.ocean.delete_run("theirs")
    created = await h.post("/v1/runs", {"sessionId": "mine", "clogId": "c", "runId": "theirs", "input": {"done": 1}})
    assert created.status_code == 201
    await h.w.drain()
    events = (await h.get_json("/v1/runs/theirs/events"))["events"]
    assert {event["sessionId"] for event in events} == {"mine"}
    streamed = await h.http.get("/v1/runs/theirs/events", headers=STREAM)
    assert '"run.done"' in streamed.text
    assert "secret" not in streamed.text


async def test_a_dry_run_is_for_keys_that_read_everything(h: AppWorld) -> None:
    """It shows inputs, and rows that all sessions share, so it needs the scope `read` and all sessions."""
    await h.w.ocean.create_run(session_id="mine", clog_id="c", run_id="own", input={"say": "x"})
    body = {"runId": "own", "dryRun": True}
    response = await h.post("/v1/advance", body)
    assert (response.status_code, error_of(response)["code"]) == (403, "key_is_limited")
    for scopes, status in ((["advance"], 403), (["advance", "read"], 200), (["admin"], 200)):
        created = await h.w.ocean.create_api_key("cron", scopes)  # type: ignore[arg-type]
        response = await h.post("/v1/advance", body, headers={"authorization": f"Bearer {created.key}"})
        assert response.status_code == status
        if status == 403:
            assert (error_of(response)["code"], error_of(response)["details"]) == ("wrong_scope", {"scope": "read"})
    assert (await h.post("/v1/advance", {"runId": "own"})).json()["advanced"] == 1


async def test_holders_of_a_slot_are_shown_only_within_the_keys_sessions(h: AppWorld) -> None:
    for session, key in (("other", "k1"), ("mine", "k2")):
        await h.w.ocean.create_run(
            session_id=session, clog_id="x", run_id=f"first-{key}", input=1, concurrency_keys=[key]
        )
        await h.w.ocean.claim_work("x", "w")
        await h.w.ocean.create_run(
            session_id="mine", clog_id="x", run_id=f"next-{key}", input=1, concurrency_keys=[key]
        )
    for key, holder in (("k1", None), ("k2", "first-k2")):
        explained = await h.get_json(f"/v1/runs/next-{key}/explain")
        assert [hold["holder"] for hold in explained["holds"] if hold["code"] == "key_full"] == [holder]
    assert "first-k1" not in (await h.get("/v1/runs/next-k1/explain")).text
