"""Every route of the table with every kind of key that must be refused, and with the one that is accepted."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from ocean.http.framework.routing import Op
from ocean.http.openapi import PARAMETER
from ocean.http.routes import TABLE
from ocean.state.records import KEY_SCOPES, KeyScope
from tests.http.kit import AppWorld, app_world, end_incomplete, error_of, messy_clog
from tests.stores.dump import changed, dump, of_sqlite

pytestmark = pytest.mark.anyio

CLOSED = [op for op in TABLE if op.scope != "open"]
WRITES = {"POST", "PUT"}


def name(op: Op) -> str:
    return f"{op.method} {op.path}"


@pytest.fixture
async def h(anyio_backend: Any) -> AsyncIterator[AppWorld]:
    """A world with a failed run, one that ended incomplete and a leased one in the session `theirs`."""
    async with app_world(more=[messy_clog()]) as h:
        await h.w.ocean.create_run(session_id="theirs", clog_id="c", run_id="secret", input={"fail": "x"})
        await h.w.drain()
        await end_incomplete(h.w, "messy", "theirs")
        await h.w.ocean.create_run(session_id="theirs", clog_id="x", run_id="leased", input=None)
        (lease,) = await h.w.ocean.claim_work("x", "w")
        h.http.headers["x-lease"] = lease.lease_id
        yield h


async def key(h: AppWorld, *scopes: KeyScope, **more: Any) -> str:
    return (await h.w.ocean.create_api_key("ann", scopes, **more)).key


async def send(h: AppWorld, op: Op, key: str | None, body: Any = None) -> httpx2.Response:
    places = {
        "run_id": "secret",
        "session_id": "theirs",
        "lease_id": h.http.headers["x-lease"],
        "clog_id": "c",
        "method": "echo",
        "key": "k",
    }
    path = PARAMETER.sub(lambda match: places[match[1]], op.path)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    sent: dict[str, Any] = {"json": body or {}} if op.method in WRITES else {}
    return await h.http.request(op.method, path, headers=headers, **sent)


async def tables(h: AppWorld) -> Any:
    return await of_sqlite(h.w.ocean._store).read(dump)


async def refused(h: AppWorld, op: Op, key: str | None, status: int, code: str) -> Any:
    before = await tables(h)
    response = await send(h, op, key)
    assert (response.status_code, error_of(response)["code"]) == (status, code)
    assert changed(before, await tables(h)) == set()
    assert ("www-authenticate" in response.headers) == (status == 401)
    return error_of(response)


@pytest.mark.parametrize("op", CLOSED, ids=name)
async def test_a_request_without_a_key_is_refused(h: AppWorld, op: Op) -> None:
    await key(h, "read")
    await refused(h, op, None, 401, "not_authenticated")


@pytest.mark.parametrize("op", CLOSED, ids=name)
async def test_a_revoked_an_expired_and_an_unknown_key_are_refused(h: AppWorld, op: Op) -> None:
    revoked = await h.w.ocean.create_api_key("ann", ["admin"])
    await h.w.ocean.revoke_api_key(revoked.info.key_id)
    expired = await key(h, "admin", expires_at=h.w.clock.now() + 1)
    h.w.clock.advance(1)
    errors = [
        await refused(h, op, each, 401, "not_authenticated")
        for each in (revoked.key, expired, f"ocean_{'0' * 12}_{'x' * 43}", "letmein", "")
    ]
    assert len({error["message"] for error in errors}) == 1, "the response does not reveal which of these it was"


@pytest.mark.parametrize("op", [op for op in CLOSED if op.scope != "any"], ids=name)
async def test_a_key_without_the_scope_is_refused(h: AppWorld, op: Op) -> None:
    others = [scope for scope in KEY_SCOPES if scope not in (op.scope, "admin")]
    error = await refused(h, op, await key(h, *others), 403, "wrong_scope")
    assert error["details"] == {"scope": op.scope}


@pytest.mark.parametrize("op", CLOSED, ids=name)
async def test_a_key_with_the_scope_is_accepted(h: AppWorld, op: Op) -> None:
    scope: KeyScope = "read" if op.scope in ("any", "open") else op.scope  # type: ignore[assignment]
    assert (await send(h, op, await key(h, scope))).status_code not in (401, 403)


@pytest.mark.parametrize("op", CLOSED, ids=name)
async def test_an_admin_key_is_accepted(h: AppWorld, op: Op) -> None:
    assert (await send(h, op, await key(h, "admin"))).status_code not in (401, 403)


@pytest.mark.parametrize("op", CLOSED, ids=name)
async def test_a_key_for_another_session_finds_nothing_there(h: AppWorld, op: Op) -> None:
    """A run, lease or session in the path is not found; routes that concern all sessions are refused."""
    mine = await key(h, "admin", sessions=["mine"])
    if "{run_id}" in op.path or "{lease_id}" in op.path:
        await refused(h, op, mine, 404, "run_not_found")
    elif "{session_id}" in op.path:
        await refused(h, op, mine, 404, "session_not_found")
    elif op.reach == "all":
        await refused(h, op, mine, 403, "key_is_limited")
    elif op.reach == "none":
        response = await send(h, op, mine)
        assert response.status_code == 200
        assert "theirs" not in response.text
    else:
        assert name(op) in EXPECTED, "add below what a key for another session gets"


EXPECTED: dict[str, list[tuple[Any, int, Any]]] = {
    "POST /v1/runs": [({"sessionId": "theirs", "clogId": "c"}, 404, "session_not_found")],
    "GET /v1/runs": [(None, 200, {"runs": [], "nextCursor": None, "count": None})],
    "POST /v1/runs/cancel": [],
    "POST /v1/runs/signal": [],
    "POST /v1/runs/retry": [],
    "POST /v1/runs/retry-end": [],
    "POST /v1/runs/delete": [],
    "POST /v1/advance": [({}, 403, "key_is_limited"), ({"runId": "secret"}, 404, "run_not_found")],
    "POST /v1/clogs/{clog_id}/call/{method}": [
        ({"sessionId": "theirs"}, 404, "session_not_found"),
        ({}, 403, "key_is_limited"),
    ],
}
NOTHING = {"seen": 0, "done": 0, "refused": 0, "errors": {}, "more": False}
for path in ("cancel", "signal", "retry", "retry-end", "delete"):
    more = {"signalId": "x"} if path == "signal" else {}
    EXPECTED[f"POST /v1/runs/{path}"] = [
        ({"everything": True} | more, 200, NOTHING),
        ({"sessionId": ["theirs"]} | more, 200, NOTHING),
        ({"clogId": ["c", "messy"]} | more, 200, NOTHING),
    ]


@pytest.mark.parametrize("op", [op for op in TABLE if op.reach == "named"], ids=name)
async def test_a_request_is_narrowed_to_the_sessions_of_its_key(h: AppWorld, op: Op) -> None:
    mine = await key(h, "admin", sessions=["mine"])
    unlimited = await key(h, "admin")
    assert EXPECTED[name(op)]
    for body, status, expected in EXPECTED[name(op)]:
        before = await tables(h)
        response = await send(h, op, mine, body)
        assert response.status_code == status, response.text
        assert (response.json() if status == 200 else error_of(response)["code"]) == expected
        assert changed(before, await tables(h)) == set()
    (body, _, expected), *_ = EXPECTED[name(op)]
    response = await send(h, op, unlimited, body)
    assert response.status_code < 300
    assert response.json() != expected


async def test_a_key_for_a_session_may_do_everything_there(h: AppWorld) -> None:
    h.http.headers["authorization"] = f"Bearer {await key(h, 'read', 'signal', 'advance', sessions=['mine', 'more'])}"
    for session in ("mine", "more"):
        body = {"sessionId": session, "clogId": "c", "runId": f"r-{session}", "input": {"done": 1}}
        assert (await h.post("/v1/runs", body)).status_code == 201
    assert (await h.post("/v1/advance", {"runId": "r-mine"})).json()["advanced"] == 1
    assert [run["runId"] for run in (await h.get_json("/v1/runs"))["runs"]] == ["r-more", "r-mine"]
    assert [run["runId"] for run in (await h.get_json("/v1/runs", sessionId=["mine", "theirs"]))["runs"]] == ["r-mine"]
    assert (await h.get_json("/v1/runs/r-mine"))["output"] == 1
    for path in (
        "/v1/runs/r-mine/events",
        "/v1/sessions/mine/events",
        "/v1/runs/r-mine/ticks",
        "/v1/runs/r-mine/explain",
    ):
        assert (await h.get(path)).status_code == 200
    response = await h.post("/v1/clogs/c/call/add", {"sessionId": "mine", "payload": 2})
    assert response.json() == {"answer": 2}


async def test_open_routes_need_no_key(h: AppWorld) -> None:
    await key(h, "read")
    for op in TABLE:
        if op.scope == "open" and op.method == "GET":
            assert (await send(h, op, None)).status_code == 200
