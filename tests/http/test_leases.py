"""The routes of leases: work is claimed, renewed, and completed once."""

from dataclasses import fields
from typing import Any

import pytest

from ocean import Input, Lease, RunInfo, RunStatus, WorkDone
from ocean.http.framework.responses import camel
from ocean.http.handlers.leases import RUN_FIELDS
from tests.http.kit import AppWorld, error_of

pytestmark = pytest.mark.anyio

NOT_FOR_WORKERS = {
    "status",
    "tick",  # Fields of the lease itself.
    "pending_count",
    "paused",
    "ending",
    "wake_at",
    "due_at",
    "locked_by",  # In the lease as workerId.
    "lock_expires_at",  # In the lease as expiresAt.
    "output",
    "error",
    "dedupe_key",
    "created_at",
    "updated_at",
    "ended_at",
    "concurrency_keys",
    "parked_on",
    "retry_of",
    "end_attempt",
    "end_incomplete",
}
"""The fields of a run that a lease does not contain: its state, which the lease implies, and how it was created."""


async def test_a_lease_describes_the_work(h: AppWorld) -> None:
    run_id = await h.new_external_run(
        {"snake_key": [1]}, run_id="r-1", queue="gpu", priority=2, attributes={"my_name": "a"}, deadline_at=2 * 10**12
    )
    assert await h.claim(queues=["cpu"]) == []
    response = await h.post(
        "/v1/leases", {"clogId": "x", "workerId": "w-7", "leaseMs": 5_000, "queues": ["gpu", "cpu"]}
    )
    now = h.w.clock.now()

    assert response.headers["cache-control"] == "no-store"
    (lease,) = response.json()["leases"]
    (given,) = lease.pop("inputs")
    lease_id = lease.pop("leaseId")
    assert lease_id.startswith("lease_")
    assert lease == {
        "workerId": "w-7",
        "expiresAt": now + 5_000,
        "tick": 1,
        "call": 1,
        "reason": "created",
        "row": None,
        "rowVersion": 0,
        "idempotencyKey": "r-1:1",
        "runId": run_id,
        "sessionId": "s",
        "clogId": "x",
        "queue": "gpu",
        "attempt": 0,
        "maxAttempts": 3,
        "priority": 2,
        "deadlineAt": 2 * 10**12,
        "attributes": {"my_name": "a"},
        "parentRunId": None,
        "correlationId": run_id,
        "input": {"snake_key": [1]},
    }
    assert (given["kind"], given["body"], given["signalId"], given["timer"]) == (
        "created",
        {"snake_key": [1]},
        None,
        None,
    )
    assert lease_id in response.text[:80], "leaseId comes first, for workers without a JSON parser"
    assert response.text.startswith('{"leases":[{"leaseId":"lease_')


async def test_the_response_has_every_field_of_a_lease_and_its_inputs(h: AppWorld) -> None:
    lease = await h.new_lease({})
    wire = set(lease)
    assert {camel(field.name) for field in fields(Lease)} - {"run"} <= wire
    assert {camel(name) for name in RUN_FIELDS} <= wire
    assert {field.name for field in fields(RunInfo)} == {*RUN_FIELDS} | NOT_FOR_WORKERS
    assert {*lease["inputs"][0]} == {camel(field.name) for field in fields(Input)}
    done = await h.complete(lease, {"type": "ok"})
    assert {*done.json()} == {camel(field.name) for field in fields(WorkDone)}


async def test_a_signal_reaches_the_worker_with_its_id(h: AppWorld) -> None:
    run_id = await h.new_external_run()
    await h.w.ocean.signal(run_id, {"say": "hello"}, signal_id="m-1")
    (lease,) = await h.claim()
    assert (lease["reason"], lease["input"]) == ("signal", {"say": "hello"})
    assert [(each["signalId"], each["body"]) for each in lease["inputs"]] == [("m-1", {"say": "hello"})]


@pytest.mark.parametrize(
    ("outcome", "status", "wanted"),
    [
        ({"type": "ok"}, "idle", {}),
        ({"type": "done"}, "done", {"output": None}),
        ({"type": "done", "output": {"a_b": 1}}, "done", {"output": {"a_b": 1}}),
        ({"type": "continue", "input": {"n": 2}}, "pending", {}),
        ({"type": "wait", "until": 2_000_000_000_000}, "waiting", {"wake_at": 2_000_000_000_000}),
        ({"type": "wait", "until": 2_000_000_000_000.0}, "waiting", {"wake_at": 2_000_000_000_000}),
        ({"type": "wait", "forMs": 500}, "waiting", {"wake_at": 1_700_000_000_500}),
        ({"type": "retry", "error": "later", "afterMs": 70}, "pending", {"attempt": 1, "wake_at": 1_700_000_000_070}),
        ({"type": "retry", "error": {"code": "busy", "message": "later"}}, "pending", {"attempt": 1}),
        (
            {"type": "failed", "error": {"code": "bad", "message": "no", "details": {"k": [1]}}},
            "failed",
            {"error": {"code": "bad", "message": "no", "details": {"k": [1]}}},
        ),
        ({"type": "failed", "error": "no"}, "failed", {"error": {"code": "failed", "message": "no", "details": None}}),
    ],
    ids=str,
)
async def test_every_outcome_can_be_sent(h: AppWorld, outcome: Any, status: str, wanted: dict[str, Any]) -> None:
    lease = await h.new_lease({})
    response = await h.complete(lease, outcome)
    assert response.status_code == 200, response.text
    assert response.json() == {"runId": lease["runId"], "tick": 1, "outcome": outcome["type"], "status": status}
    info = await h.w.ocean.get_run(lease["runId"])
    assert info is not None
    assert info.status == status
    assert {name: getattr(info, name) for name in wanted} == wanted
    assert (await h.complete(lease, outcome)).content == response.content, "a repeated completion has the same result"


async def test_a_row_is_written_replaced_by_null_and_cleared(h: AppWorld) -> None:
    await h.new_external_run({})
    seen = []
    for more in ({"row": {"n_n": 1}}, {}, {"row": None}, {"clearRow": True}, {"clearRow": False}):
        (lease,) = await h.claim()
        seen.append((lease["row"], lease["rowVersion"] > 0))
        assert (await h.complete(lease, {"type": "continue"}, **more)).status_code == 200
    assert seen == [(None, False), ({"n_n": 1}, True), ({"n_n": 1}, True), (None, True), (None, False)]


async def test_events_of_a_renewal_appear_at_once_and_those_of_a_completion_with_it(h: AppWorld) -> None:
    lease = await h.new_lease({})
    h.w.clock.advance(20_000)
    body = {"leaseMs": 40_000, "events": [{"type": "half", "payload": {"at_p": 50}}, {"type": "bare"}]}
    response = await h.post(f"/v1/leases/{lease['leaseId']}/renew", body)
    assert response.json() == {"expiresAt": h.w.clock.now() + 40_000}
    assert (await h.post(f"/v1/leases/{lease['leaseId']}/renew")).status_code == 200
    await h.complete(lease, {"type": "done"}, events=[{"type": "whole", "payload": [1]}])
    events = await h.w.ocean.read_events(lease["runId"], types=["half", "bare", "whole"])
    assert [(event.type, event.payload) for event in events] == [("half", {"at_p": 50}), ("bare", None), ("whole", [1])]


async def test_a_worker_that_is_too_late_gets_lease_lost(h: AppWorld) -> None:
    late = await h.new_lease({}, retry=None)
    h.w.clock.advance(30_001)
    await h.w.ocean.advance()
    h.w.clock.advance(1_000)
    for response in (await h.post(f"/v1/leases/{late['leaseId']}/renew"), await h.complete(late, {"type": "done"})):
        error = error_of(response)
        assert (response.status_code, error["code"], error["retryable"]) == (409, "lease_lost", False)
        assert error["details"] == {"runId": late["runId"]}
        assert late["leaseId"] not in response.text
    (again,) = await h.claim()
    assert (again["runId"], again["tick"], again["attempt"]) == (late["runId"], 1, 1)
    assert again["idempotencyKey"] == late["idempotencyKey"]


async def test_another_completion_of_a_completed_lease_is_refused(h: AppWorld) -> None:
    lease = await h.new_lease({})
    await h.complete(lease, {"type": "done", "output": 1})
    response = await h.complete(lease, {"type": "done", "output": 2})
    assert (response.status_code, error_of(response)["code"]) == (409, "lease_completed")
    info = await h.w.ocean.get_run(lease["runId"])
    assert info is not None
    assert (info.status, info.output) == (RunStatus.DONE, 1)


async def test_a_row_changed_in_the_meantime_is_returned_with_its_version(h: AppWorld) -> None:
    lease = await h.new_lease({})
    response = await h.complete(lease, {"type": "ok"}, row={"n": 1}, rowVersion=9)
    error = error_of(response)
    assert (response.status_code, error["code"], error["retryable"]) == (409, "row_changed", False)
    assert error["details"] == {"row": None, "rowVersion": 0}
    assert "retry-after" not in response.headers, "the same completion would fail again"
    assert (await h.complete(lease, {"type": "ok"}, row={"n": 1}, rowVersion=0)).status_code == 200


async def test_a_missing_or_internal_clog_has_no_leases(h: AppWorld) -> None:
    for clog_id, status, code in (("y", 404, "unknown_clog"), ("inside", 400, "invalid_value")):
        response = await h.post("/v1/leases", {"clogId": clog_id, "workerId": "w"})
        assert (response.status_code, error_of(response)["code"]) == (status, code)


async def test_released_work_is_due_again_at_once(h: AppWorld) -> None:
    await h.new_external_run({})
    (lease,) = await h.claim()
    response = await h.post(f"/v1/leases/{lease['leaseId']}/release", {})
    assert (response.status_code, response.json()) == (200, {"status": "pending"})
    (again,) = await h.claim()
    assert (again["call"], again["attempt"]) == (2, 0)
    late = await h.post(f"/v1/leases/{lease['leaseId']}/release", {})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "lease_lost")
