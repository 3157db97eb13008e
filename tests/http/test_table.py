"""The route table: whole, said once, and the same in the routes, in the document and in the repository."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from ocean import Ocean
from ocean.http.framework.call import HandlerCall, ServerState
from ocean.http.framework.routing import Op
from ocean.http.handlers import api_docs
from ocean.http.openapi import PARAMETER, document
from ocean.http.routes import TABLE
from ocean.state.access import EVERYTHING, KEY_SCOPES
from tests.http.kit import House, error_of

ROOT = Path(__file__).parents[2]

ROUTED = {
    "create_run": "POST /v1/runs",
    "list_runs": "GET /v1/runs",
    "count_runs": "GET /v1/runs",
    "settle": "POST /v1/runs",
    "get_run": "GET /v1/runs/{run_id}",
    "delete_run": "DELETE /v1/runs/{run_id}",
    "signal": "POST /v1/runs/{run_id}/signal",
    "call_clog": "POST /v1/runs/{run_id}/call/{method}",
    "cancel_run": "POST /v1/runs/{run_id}/cancel",
    "pause_run": "POST /v1/runs/{run_id}/pause",
    "resume_run": "POST /v1/runs/{run_id}/resume",
    "retry_run": "POST /v1/runs/{run_id}/retry",
    "explain": "GET /v1/runs/{run_id}/explain",
    "list_ticks": "GET /v1/runs/{run_id}/ticks",
    "list_inputs": "GET /v1/runs/{run_id}/inputs",
    "read_events": "GET /v1/events",
    "follow": "GET /v1/events",
    "cancel_runs": "POST /v1/runs/cancel",
    "signal_runs": "POST /v1/runs/signal",
    "retry_runs": "POST /v1/runs/retry",
    "delete_runs": "POST /v1/runs/delete",
    "claim_work": "POST /v1/leases",
    "renew_work": "POST /v1/leases/{lease_id}/renew",
    "complete_work": "POST /v1/leases/{lease_id}/complete",
    "release_work": "POST /v1/leases/{lease_id}/release",
    "advance": "POST /v1/advance",
    "agenda": "GET /readyz",
    "delete_session": "DELETE /v1/sessions/{session_id}",
    "list_clogs": "GET /v1/clogs",
    "pause_clog": "POST /v1/clogs/{clog_id}/pause",
    "resume_clog": "POST /v1/clogs/{clog_id}/resume",
    "list_tools": "GET /v1/tools",
    "tool_schemas": "GET /v1/tools",
    "list_keys": "GET /v1/keys",
    "get_key": "GET /v1/keys/{key:path}",
    "set_limit": "PUT /v1/keys/{key:path}",
    "take": "POST /v1/counters/{key:path}/take",
    "reset_counter": "DELETE /v1/counters/{key:path}",
    "start_web_session": "POST /v1/session",
    "access_by_web_session": "GET /v1/session",
    "access_by_key": "GET /v1/session",
    "end_web_session": "DELETE /v1/session",
}
LEFT_OUT = {
    "open": "a server has its Ocean open",
    "start": "made with it",
    "close": "whoever opened it closes it",
    "result": "a run's output is in the run; ?waitMs waits for it",
    "sweep": "for whoever has the database at hand",
    "create_api_key": "for whoever has the database at hand",
    "list_api_keys": "for whoever has the database at hand",
    "revoke_api_key": "for whoever has the database at hand",
    "has_api_keys": "every request without a key finds out",
    "follow_in_parts": "streams follow their feed by it",
    "new_id": "whoever asks over HTTP makes ids of its own",
    "read_newest_events": "for clogs whose contract has a log that begins with the newest",
    "kept_answer": "an Idempotency-Key is looked up by it",
    "keep_answer": "an Idempotency-Key is kept by it",
    "standing": "every verb on a run asks it",
    "standing_of_lease": "every verb on a lease asks it",
    "has_events": "a run's feed asks it for a key for some sessions",
    "allowed_verbs": "GET /v1/clogs tells it of all",
    "fetch": "for workers and clogs' routes; a server is nobody's proxy",
    "receive_webhook": "a delivery comes signed, to /hooks",
    "commits_seen": "a stream is told of what is new",
    "next_change": "a stream is told of what is new",
    "last_cursor": "?after=latest of a feed",
    "watching": "whoever streams a run's feed watches it",
}


def name(op: Op) -> str:
    return f"{op.method} {op.path}"


def test_every_verb_has_a_route_or_is_left_out_on_purpose() -> None:
    verbs = {
        verb
        for verb, value in inspect.getmembers(Ocean)
        if not verb.startswith("_") and (inspect.isfunction(value) or inspect.ismethod(value))
    }
    assert verbs == ROUTED.keys() | LEFT_OUT.keys()
    assert {*ROUTED.values()} <= {name(op) for op in TABLE}


def test_a_route_is_said_once_and_says_who_may_use_it() -> None:
    assert len({name(op) for op in TABLE}) == len(TABLE)
    assert len({op.handler for op in TABLE}) == len(TABLE), "each operation has a name of its own"
    for op in TABLE:
        assert op.scope in (*KEY_SCOPES, "any", "open")
        is_api = op.path.startswith("/v1/") or op.path == "/metrics"
        assert (op.scope == "open") == (not is_api or name(op) == "POST /v1/session")
        assert (op.verb is not None) == ("{run_id}" in op.path and op.method != "GET")
        assert op.responses
        assert (op.body is not None) == (op.method in ("POST", "PUT"))
        assert not (op.pokes and op.method == "GET")


def test_the_committed_document_is_the_tables() -> None:
    """Written anew by: python -m tests.http.test_table"""
    assert (ROOT / "docs" / "openapi.json").read_text() == written()


def written() -> str:
    return json.dumps(document(TABLE), indent=1, ensure_ascii=False) + "\n"


def test_what_the_document_refers_to_is_in_it() -> None:
    said = document(TABLE)
    text = json.dumps(said)
    for part in text.split('"$ref": "')[1:]:
        assert part.partition('"')[0].removeprefix("#/components/schemas/") in said["components"]["schemas"]
    for schema in said["components"]["schemas"].values():
        for field in schema.get("properties", {}):
            assert "_" not in field


@pytest.mark.anyio
async def test_the_document_and_the_page_are_served(h: House) -> None:
    assert await h.asked("/openapi.json") == document(TABLE)
    page = await h.get("/docs")
    for answer in (page, await h.get("/openapi.json"), await h.get("/healthz")):
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in page.text
    for op in TABLE:
        assert op.summary.split(",")[0][:20].replace("'", "&#x27;") in page.text


@pytest.mark.anyio
@pytest.mark.parametrize("handler", [api_docs.docs, api_docs.openapi_json])
async def test_what_anybody_may_ask_for_is_put_into_words_once(h: House, handler: Any) -> None:
    call = HandlerCall(ServerState(h.w.ocean, TABLE), Request({"type": "http"}), EVERYTHING)
    first, second = await handler(call), await handler(call)
    assert first.body
    assert first.body is second.body


@pytest.mark.anyio
@pytest.mark.parametrize("path", sorted({op.path for op in TABLE}))
async def test_another_method_is_told_all_that_are_allowed(h: House, path: str) -> None:
    methods = {op.method for op in TABLE if op.path == path}
    if path.count("/") == 3 and path.startswith("/v1/runs/"):
        methods |= {"GET", "DELETE"}  # Of a run that is named like a verb.
    if path.endswith("/take"):
        methods |= {"DELETE"}  # Of a counter that is named so.
    allowed: set[str] = {*methods} | ({"HEAD"} if "GET" in methods else set())
    for method in ("PATCH", "OPTIONS"):
        answer = await h.http.request(method, PARAMETER.sub("a", path))
        assert answer.status_code == 405
        assert error_of(answer)["code"] == "method_not_allowed"
        assert {each.strip() for each in answer.headers["allow"].split(",")} == allowed


@pytest.mark.anyio
@pytest.mark.parametrize("op", [op for op in TABLE if op.body], ids=name)
async def test_every_body_is_strict(h: House, op: Op) -> None:
    path = PARAMETER.sub("a", op.path)
    bodies: list[tuple[Any, dict[str, str], int]] = [
        (b'{"surprise": 1}', {"content-type": "application/json"}, 400),
        (b"[]", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b" " * (op.most_bytes + 1), {"content-type": "application/json"}, 413),
    ]
    for body, headers, status in bodies:
        answer = await h.http.request(op.method, path, content=body, headers=headers)
        assert (answer.status_code, error_of(answer)["httpStatus"]) == (status, status)


if __name__ == "__main__":
    (ROOT / "docs" / "openapi.json").write_text(written())
