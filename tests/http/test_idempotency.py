"""Idempotency-Key: a repeated request gets the first response, byte for byte, and changes nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Clog, Done, Outcome, Refuse, Tick
from ocean.http.framework.routing import Op, Repeat
from ocean.http.routes import TABLE
from tests.http.kit import AppWorld, app_world, end_incomplete, error_of, messy_clog
from tests.lifecycle.acting import Script, dump

pytestmark = pytest.mark.anyio

KEY = {"Idempotency-Key": "k-1"}
EXAMPLES: dict[str, tuple[str, Any, str, Any]] = {
    "POST /v1/runs": ("/v1/runs", {"sessionId": "s", "clogId": "c"}, "/v1/runs", {"sessionId": "t", "clogId": "c"}),
    "DELETE /v1/runs/{run_id}": ("/v1/runs/r", None, "/v1/runs/failed", None),
    "POST /v1/runs/{run_id}/signal": ("/v1/runs/r/signal", {"input": 1}, "/v1/runs/r/signal", {"input": 2}),
    "POST /v1/runs/{run_id}/call/{method}": (
        "/v1/runs/r/call/add",
        {"payload": 1},
        "/v1/runs/r/call/add",
        {"payload": 2},
    ),
    "POST /v1/runs/{run_id}/cancel": ("/v1/runs/r/cancel", {}, "/v1/runs/r/cancel", {"reason": "other"}),
    "POST /v1/runs/{run_id}/pause": ("/v1/runs/r/pause", {}, "/v1/runs/r2/pause", {}),
    "POST /v1/runs/{run_id}/resume": ("/v1/runs/r/resume", {}, "/v1/runs/r/pause", {}),
    "POST /v1/runs/{run_id}/retry": ("/v1/runs/failed/retry", {}, "/v1/runs/r/retry", {}),
    "POST /v1/runs/{run_id}/retry-end": ("/v1/runs/messy/retry-end", {}, "/v1/runs/r/retry-end", {}),
    "DELETE /v1/sessions/{session_id}": ("/v1/sessions/s", None, "/v1/sessions/t", None),
    "POST /v1/clogs/{clog_id}/pause": ("/v1/clogs/c/pause", {}, "/v1/clogs/x/pause", {}),
    "POST /v1/clogs/{clog_id}/resume": ("/v1/clogs/c/resume", {}, "/v1/clogs/c/pause", {}),
    "POST /v1/clogs/{clog_id}/call/{method}": (
        "/v1/clogs/c/call/add",
        {"payload": 1, "sessionId": "s"},
        "/v1/clogs/c/call/add",
        {"payload": 1, "sessionId": "t"},
    ),
    "PUT /v1/keys/{key:path}": ("/v1/keys/k", {"limit": 2}, "/v1/keys/k", {"limit": 3}),
    "POST /v1/counters/{key:path}/take": ("/v1/counters/n/take", {}, "/v1/counters/n/take", {"n": 2}),
    "DELETE /v1/counters/{key:path}": ("/v1/counters/n", None, "/v1/counters/m", None),
    "POST /v1/runs/cancel": ("/v1/runs/cancel", {"clogId": ["c"]}, "/v1/runs/cancel", {"clogId": ["x"]}),
    "POST /v1/runs/signal": (
        "/v1/runs/signal",
        {"clogId": ["c"], "signalId": "all"},
        "/v1/runs/signal",
        {"clogId": ["c"], "signalId": "others"},
    ),
    "POST /v1/runs/retry": ("/v1/runs/retry", {"clogId": ["c"]}, "/v1/runs/delete", {"clogId": ["c"]}),
    "POST /v1/runs/retry-end": (
        "/v1/runs/retry-end",
        {"everything": True},
        "/v1/runs/retry-end",
        {"endIncomplete": True},
    ),
    "POST /v1/runs/delete": ("/v1/runs/delete", {"everything": True}, "/v1/runs/delete", {"clogId": ["c"]}),
    "POST /v1/advance": ("/v1/advance", {"runId": "due"}, "/v1/advance", {}),
    "POST /v1/leases/{lease_id}/renew": (
        "/v1/leases/LEASE/renew",
        {"events": [{"type": "half"}]},
        "/v1/leases/LEASE/renew",
        {"events": [{"type": "whole"}]},
    ),
    "POST /v1/leases/{lease_id}/complete": (
        "/v1/leases/LEASE/complete",
        {"outcome": {"type": "ok"}},
        "/v1/leases/LEASE/complete",
        {"outcome": {"type": "done"}},
    ),
    "POST /v1/leases/{lease_id}/release": ("/v1/leases/LEASE/release", {}, "/v1/leases/LEASE/renew", {}),
}


@pytest.fixture
async def h(anyio_backend: Any) -> AsyncIterator[AppWorld]:
    async with app_world(more=[messy_clog()]) as world:
        yield world


def name(op: Op) -> str:
    return f"{op.method} {op.path}"


KEYED = [op for op in TABLE if op.repeat in (Repeat.KEYED, Repeat.KEPT)]
NOT_KEYED = [op for op in TABLE if op not in KEYED]
SECRET = {"POST /v1/leases", "POST /v1/session", "DELETE /v1/session"}


async def send(h: AppWorld, op: Op, path: str, body: Any, headers: dict[str, str]) -> Any:
    options = {} if body is None else {"json": body}
    return await h.http.request(op.method, path, headers=headers, **options)


async def create_examples(h: AppWorld) -> str:
    """Create what the examples need and return the id of a lease."""
    await h.new_run({"fail": "no"}, run_id="failed")
    await h.w.drain()
    await h.new_run(run_id="r")
    await h.new_run(run_id="r2")
    await h.w.ocean.take("n")
    await h.new_run({"say": 1}, run_id="due")
    await end_incomplete(h.w, "messy")
    lease: str = (await h.new_lease())["leaseId"]
    return lease


@pytest.mark.parametrize("op", KEYED, ids=name)
async def test_a_repeated_request_gets_the_first_response_and_changes_nothing(h: AppWorld, op: Op) -> None:
    lease = await create_examples(h)
    path, body, other_path, other_body = EXAMPLES[name(op)]
    path, other_path = path.replace("LEASE", lease), other_path.replace("LEASE", lease)
    first = await send(h, op, path, body, KEY)
    assert first.is_success, first.text
    h.w.clock.advance(1_000)
    before = await dump(h.w)
    again = await send(h, op, path, body, KEY)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert await dump(h.w) == before
    other = await send(h, op, other_path, other_body, KEY)
    assert (other.status_code, error_of(other)["code"]) == (409, "request_key_reused")
    assert await dump(h.w) == before


@pytest.mark.parametrize("op", KEYED, ids=name)
async def test_the_first_response_outlives_its_server(op: Op, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    path, body, *_ = EXAMPLES[name(op)]
    async with app_world(url, more=[messy_clog()]) as h:
        path = path.replace("LEASE", await create_examples(h))
        first = await send(h, op, path, body, KEY)
        assert first.is_success, first.text
    async with app_world(url, more=[messy_clog()]) as h:
        before = await dump(h.w)
        again = await send(h, op, path, body, KEY)
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert await dump(h.w) == before


def test_every_route_that_takes_a_key_has_an_example() -> None:
    assert EXAMPLES.keys() == {name(op) for op in KEYED}


@pytest.mark.parametrize("op", NOT_KEYED, ids=name)
async def test_a_key_is_refused_where_no_response_is_stored(h: AppWorld, op: Op) -> None:
    path = op.path.replace("{", "").replace("}", "").replace(":path", "")
    before = await dump(h.w)
    response = await send(h, op, path, {} if op.body else None, KEY)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "idempotency_key_not_taken")
    assert error["message"].startswith(f"{op.method} {op.path} does not accept Idempotency-Key: ")
    assert await dump(h.w) == before


async def test_every_change_accepts_a_key_or_has_a_reason_not_to() -> None:
    for op in TABLE:
        assert (op.repeat is Repeat.SAFE) == (op.method == "GET"), name(op)
        assert (op.repeat is Repeat.NEVER) == (name(op) in SECRET), name(op)


@pytest.mark.parametrize("key", ["", "x" * 257])
async def test_an_invalid_idempotency_key_is_refused(h: AppWorld, key: str) -> None:
    response = await h.post("/v1/runs", {"sessionId": "s", "clogId": "c"}, headers={"Idempotency-Key": key})
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_value")
    assert "Idempotency-Key" in error_of(response)["message"]


async def test_a_request_has_one_key(h: AppWorld) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Type", "application/json")]
    response = await h.http.post("/v1/runs", content=b'{"sessionId": "s", "clogId": "c"}', headers=headers)
    assert (response.status_code, error_of(response)["code"]) == (400, "invalid_value")


async def test_a_poke_repeated_with_its_key_is_not_done_again(h: AppWorld) -> None:
    await h.new_run({"more": {"done": 1}}, run_id="r")
    first = await h.post("/v1/advance", {"runId": "r", "maxTicks": 1}, headers=KEY)
    assert first.json()["advanced"] == 1
    again = await h.post("/v1/advance", {"runId": "r", "maxTicks": 1}, headers=KEY)
    assert again.content == first.content
    assert (await h.get_json("/v1/runs/r"))["tick"] == 1


async def test_a_request_that_is_still_running_is_not_started_again() -> None:
    slow = Clog("slow")
    started, may_end, calls = anyio.Event(), anyio.Event(), 0

    @slow.method
    async def work(tick: Tick, payload: Any) -> int:
        nonlocal calls
        calls += 1
        started.set()
        await may_end.wait()
        if payload == "fail":
            raise Refuse("no", http_status=422)
        return calls

    async with app_world(more=[slow]) as h:
        path, responses = "/v1/clogs/slow/call/work", []

        async def send_first() -> None:
            responses.append(await h.post(path, {"payload": 1}, headers=KEY))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_first)
            await started.wait()
            for body in ({"payload": 1}, {"payload": 2}):
                with anyio.fail_after(20):
                    again = await h.post(path, body, headers=KEY)
                assert (again.status_code, error_of(again)["code"], calls) == (409, "request_running", 1)
                assert error_of(again)["retryable"] is True
            may_end.set()
            assert (await h.post(path, {"payload": 0})).json() == {"answer": 2}
        assert (await h.post(path, {"payload": 1}, headers=KEY)).content == responses[0].content
        for _ in range(2):
            failed = await h.post(path, {"payload": "fail"}, headers={"Idempotency-Key": "k-2"})
            assert failed.status_code == 422


async def test_a_request_that_only_waits_for_its_run_does_not_hold_its_key() -> None:
    started, may_end = anyio.Event(), anyio.Event()

    async def slowly(tick: Tick) -> Outcome:
        started.set()
        await may_end.wait()
        return Done()

    async with app_world(more=[Script(slowly, clog_id="slow")]) as h, anyio.create_task_group() as tasks:
        body = {"sessionId": "s", "clogId": "slow", "input": {}}

        async def wait() -> None:
            response = await h.post("/v1/runs?waitMs=60000", body, headers=KEY)
            assert (response.status_code, response.json()["status"]) == (200, "done")

        tasks.start_soon(wait)
        await started.wait()
        again = await h.post("/v1/runs", body, headers=KEY)
        assert (again.status_code, again.json()["status"]) == (201, "pending")
        may_end.set()


async def test_a_key_is_deleted_a_day_later(h: AppWorld) -> None:
    body = {"sessionId": "s", "clogId": "c"}
    first = await h.post("/v1/runs", body, headers=KEY)
    h.w.clock.advance(86_400_000)
    await h.w.ocean.sweep()
    assert (await h.post("/v1/runs", body, headers=KEY)).content == first.content
    h.w.clock.advance(1)
    await h.w.ocean.sweep()
    assert (await h.post("/v1/runs", body, headers=KEY)).json()["runId"] != first.json()["runId"]
