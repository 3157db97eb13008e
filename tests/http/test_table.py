"""The route table: complete, without duplicates, and equal to the routes, the document and the committed file."""

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
from ocean.state.records import EVERYTHING, KEY_SCOPES
from tests.http.kit import AppWorld, error_of

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
    "retry_end": "POST /v1/runs/{run_id}/retry-end",
    "explain": "GET /v1/runs/{run_id}/explain",
    "list_ticks": "GET /v1/runs/{run_id}/ticks",
    "list_inputs": "GET /v1/runs/{run_id}/inputs",
    "read_events": "GET /v1/events",
    "follow": "GET /v1/events",
    "cancel_runs": "POST /v1/runs/cancel",
    "signal_runs": "POST /v1/runs/signal",
    "retry_runs": "POST /v1/runs/retry",
    "retry_ends": "POST /v1/runs/retry-end",
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
    "start": "it is created open",
    "close": "the process that opened it closes it",
    "stop": "the process stops itself, on a signal",
    "result": "a run's output is in the run; ?waitMs waits for it",
    "sweep": "only for processes with access to the database",
    "create_api_key": "only for processes with access to the database",
    "list_api_keys": "only for processes with access to the database",
    "revoke_api_key": "only for processes with access to the database",
    "has_api_keys": "called for every request without a key",
    "follow_in_parts": "streams use it to follow their feed",
    "new_id": "HTTP clients create their own ids",
    "read_newest_events": "for clogs whose contract lists the newest events first",
    "kept_answer": "looks up an Idempotency-Key",
    "keep_answer": "stores the response for an Idempotency-Key",
    "standing": "called for every verb on a run",
    "standing_of_lease": "called for every verb on a lease",
    "has_events": "the feed of a run uses it for keys limited to some sessions",
    "allowed_verbs": "GET /v1/clogs returns it for all clogs",
    "fetch": "for workers and the routes of clogs; a server is not a proxy",
    "receive_webhook": "deliveries are signed and sent to /hooks",
    "commits_seen": "streams use it to wait for commits",
    "next_change": "streams use it to wait for commits",
    "last_cursor": "?after=latest of a feed",
    "watching": "the stream of a run watches it",
}


def name(op: Op) -> str:
    return f"{op.method} {op.path}"


def test_every_verb_has_a_route_or_a_reason_for_none() -> None:
    verbs = {
        verb
        for verb, value in inspect.getmembers(Ocean)
        if not verb.startswith("_") and (inspect.isfunction(value) or inspect.ismethod(value))
    }
    assert verbs == ROUTED.keys() | LEFT_OUT.keys()
    assert {*ROUTED.values()} <= {name(op) for op in TABLE}


def test_every_route_is_declared_once_with_its_scope() -> None:
    assert len({name(op) for op in TABLE}) == len(TABLE)
    assert len({op.handler for op in TABLE}) == len(TABLE), "each operation has its own name"
    for op in TABLE:
        assert op.scope in (*KEY_SCOPES, "any", "open")
        is_api = op.path.startswith("/v1/") or op.path == "/metrics"
        assert (op.scope == "open") == (not is_api or name(op) == "POST /v1/session")
        assert (op.verb is not None) == ("{run_id}" in op.path and op.method != "GET")
        assert op.responses
        assert (op.body is not None) == (op.method in ("POST", "PUT"))
        assert not (op.pokes and op.method == "GET")


def test_the_committed_document_matches_the_table() -> None:
    """Update it with: python -m tests.http.test_table"""
    assert (ROOT / "docs" / "openapi.json").read_text() == written()


def written() -> str:
    return json.dumps(document(TABLE), indent=1, ensure_ascii=False) + "\n"


def test_every_reference_of_the_document_resolves() -> None:
    spec = document(TABLE)
    text = json.dumps(spec)
    for part in text.split('"$ref": "')[1:]:
        assert part.partition('"')[0].removeprefix("#/components/schemas/") in spec["components"]["schemas"]
    for schema in spec["components"]["schemas"].values():
        for field in schema.get("properties", {}):
            assert "_" not in field


@pytest.mark.anyio
async def test_the_document_and_the_page_are_served(h: AppWorld) -> None:
    assert await h.get_json("/openapi.json") == document(TABLE)
    page = await h.get("/docs")
    for response in (page, await h.get("/openapi.json"), await h.get("/healthz")):
        assert response.headers["x-content-type-options"] == "nosniff"
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<script" not in page.text
    for op in TABLE:
        assert op.summary.split(",")[0][:20].replace("'", "&#x27;") in page.text


@pytest.mark.anyio
@pytest.mark.parametrize("handler", [api_docs.docs, api_docs.openapi_json])
async def test_public_pages_are_rendered_once(h: AppWorld, handler: Any) -> None:
    call = HandlerCall(ServerState(h.w.ocean, TABLE), Request({"type": "http"}), EVERYTHING)
    first, second = await handler(call), await handler(call)
    assert first.body
    assert first.body is second.body


@pytest.mark.anyio
@pytest.mark.parametrize("path", sorted({op.path for op in TABLE}))
async def test_a_wrong_method_gets_all_allowed_methods(h: AppWorld, path: str) -> None:
    methods = {op.method for op in TABLE if op.path == path}
    if path.count("/") == 3 and path.startswith("/v1/runs/"):
        methods |= {"GET", "DELETE"}  # The route of a run that is named like a verb.
    if path.endswith("/take"):
        methods |= {"DELETE"}  # The route of a counter with this name.
    allowed: set[str] = {*methods} | ({"HEAD"} if "GET" in methods else set())
    for method in ("PATCH", "OPTIONS"):
        response = await h.http.request(method, PARAMETER.sub("a", path))
        assert response.status_code == 405
        assert error_of(response)["code"] == "method_not_allowed"
        assert {each.strip() for each in response.headers["allow"].split(",")} == allowed


@pytest.mark.anyio
@pytest.mark.parametrize("op", [op for op in TABLE if op.body], ids=name)
async def test_every_body_is_strict(h: AppWorld, op: Op) -> None:
    path = PARAMETER.sub("a", op.path)
    bodies: list[tuple[Any, dict[str, str], int]] = [
        (b'{"surprise": 1}', {"content-type": "application/json"}, 400),
        (b"[]", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b" " * (op.most_bytes + 1), {"content-type": "application/json"}, 413),
    ]
    for body, headers, status in bodies:
        response = await h.http.request(op.method, path, content=body, headers=headers)
        assert (response.status_code, error_of(response)["httpStatus"]) == (status, status)


if __name__ == "__main__":
    (ROOT / "docs" / "openapi.json").write_text(written())
