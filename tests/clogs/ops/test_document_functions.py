"""The sections of the reference on RPC functions and HTTP endpoints: each example is sent unchanged."""

from typing import Any

import pytest

from ocean import Done
from tests.clogs.ops.kit import MINUTE_MS, PROPOSE, loop

pytestmark = pytest.mark.anyio

DEPLOY = {
    "title": "Deploy to production",
    "risk_level": "high",
    "steps": [{"kind": "wreckit", "params": {"command": "deploy", "id": "prod"}}],
}
POLICY = [
    {"key": "auto_approve", "value": {"enabled": True, "allowed_step_kinds": ["noop", "minion", "radar"]}},
    {"key": "proposal_caps", "value": {"daily_limit": 100, "per_source_limits": {"api": 50, "reaction": 200}}},
]
SAFE = {"steps": [{"kind": "noop", "params": {}}]}
ANONYMOUS = "123e4567-e89b-12d3-a456-426614174000"


async def test_ops_create_proposal_and_maybe_autoapprove() -> None:
    async with loop() as ops:
        params = {"p_dedupe_key": "test-proposal-001", "p_source": "manual", "p_template": DEPLOY}
        (made,) = await ops.rpc(PROPOSE, **params)
        assert made.keys() == {"proposal_id", "status", "mission_id", "reason"}
        assert (made["status"], made["mission_id"], made["reason"]) == ("pending", None, None)
        assert await ops.rpc(PROPOSE, **params) == [made]
        await ops.put(*POLICY)
        (safe,) = await ops.rpc(PROPOSE, p_dedupe_key=None, p_source="api", p_template=SAFE)
        assert safe["status"] == "auto_approved"
        (row,) = await ops.rows(f"ops_mission_proposals?id=eq.{safe['proposal_id']}")
        assert row["policy_snapshot"] == {policy["key"]: policy["value"] for policy in POLICY}
        (mission,) = await ops.rows(f"ops_missions?proposal_id=eq.{safe['proposal_id']}")
        assert mission["id"] == safe["mission_id"]


async def test_ops_gate_proposal() -> None:
    async with loop() as ops:
        params = {"p_template": {"title": "test"}}
        assert await ops.rpc("ops_gate_proposal", **params) == [{"ok": True, "reason": None}]
        await ops.put({"key": "proposal_caps", "value": {"daily_limit": 1, "per_source_limits": {"api": 0}}})
        for _ in range(3):
            assert await ops.rpc("ops_gate_proposal", **params) == [{"ok": True, "reason": None}], "it consumes nothing"
        of_api = {"ok": False, "reason": "Daily proposal cap reached for source api"}
        assert await ops.rpc("ops_gate_proposal", **params, p_source="api") == [of_api]
        await ops.propose()
        assert await ops.rpc("ops_gate_proposal", **params) == [{"ok": False, "reason": "Daily proposal cap reached"}]


async def test_ops_is_auto_approvable() -> None:
    async with loop() as ops:
        assert await ops.rpc("ops_is_auto_approvable", p_template=SAFE) is False
        await ops.put(*POLICY)
        assert await ops.rpc("ops_is_auto_approvable", p_template=SAFE) is True
        assert await ops.rpc("ops_is_auto_approvable", p_template=DEPLOY) is False
        assert await ops.rpc("ops_is_auto_approvable", p_template={"steps": []}) is False


async def test_ops_create_mission_from_proposal() -> None:
    async with loop() as ops:
        absent = await ops.ask("POST", "rpc/ops_create_mission_from_proposal", {"p_proposal_id": ANONYMOUS})
        assert (absent.status, absent.json()) == (404, {"error": f"Proposal {ANONYMOUS} not found", "code": "P0001"})
        id = (await ops.propose({"kind": "a", "executor": "x"}, {"kind": "b", "params": {"n": 1}}))["proposal_id"]
        pending = await ops.refusal("POST", "rpc/ops_create_mission_from_proposal", {"p_proposal_id": id})
        assert pending == (409, "P0001")
        await ops.answer("POST", f"ops_mission_proposals/{id}/approve")
        mission = await ops.rpc("ops_create_mission_from_proposal", p_proposal_id=id)
        assert await ops.rpc("ops_create_mission_from_proposal", p_proposal_id=id) == mission
        (row,) = await ops.rows("ops_missions")
        assert (row["id"], row["status"], row["started_at"]) == (mission, "approved", row["created_at"])
        steps = await ops.rows(f"ops_mission_steps?mission_id=eq.{mission}&order=created_at.asc")
        assert [(s["kind"], s["params"], s["status"], s["executor"]) for s in steps] == [
            ("a", {}, "queued", "x"),
            ("b", {"n": 1}, "queued", "openclaw"),
        ]


async def test_ops_maybe_finalize_mission() -> None:
    async with loop() as ops:
        assert await ops.rpc("ops_maybe_finalize_mission", p_mission_id=ANONYMOUS) is None, "no error, no update"
        mission = await ops.mission({"kind": "noop"}, {"kind": "noop"})
        await ops.complete(await ops.claim())
        await ops.rpc("ops_maybe_finalize_mission", p_mission_id=mission)
        assert await ops.mission_status(mission) == "running"
        # The last report is stored, and the process that took it dies before it moves the mission.
        (lease,) = await ops.w.ocean.claim_work("ops-attempts", "w", MINUTE_MS)
        await ops.w.ocean.complete_work(lease.lease_id, Done({}))
        assert await ops.mission_status(mission) == "running"
        await ops.rpc("ops_maybe_finalize_mission", p_mission_id=mission)
        (row,) = await ops.rows("ops_missions")
        assert row["status"] == "succeeded"
        assert row["completed_at"] is not None


async def test_ops_recover_stale_steps() -> None:
    async with loop() as ops:
        mission = await ops.mission({"kind": "noop"})
        await ops.claim(minutes=60)
        ops.w.clock.advance(30 * MINUTE_MS)
        assert await ops.rpc("ops_recover_stale_steps", p_threshold_minutes=30) == [{"recovered_steps": 0}]
        ops.w.clock.advance(1)
        assert await ops.rpc("ops_recover_stale_steps", p_threshold_minutes=30) == [{"recovered_steps": 1}]
        assert await ops.steps(mission) == [("failed", "Stale: no progress within threshold")]
        assert await ops.mission_status(mission) == "failed"


async def test_ops_recover_expired_leases() -> None:
    async with loop() as ops:
        for _ in range(5):
            await ops.mission({"kind": "noop"})
        await ops.mission({"kind": "noop", "max_retries": 1})
        for _ in range(6):
            await ops.claim(minutes=5)
        assert await ops.rpc("ops_recover_expired_leases") == [{"requeued_steps": 0, "failed_steps": 0}]
        ops.w.clock.advance(5 * MINUTE_MS)
        assert await ops.rpc("ops_recover_expired_leases") == [{"requeued_steps": 5, "failed_steps": 1}]
        requeued = await ops.rows("ops_mission_steps?status=eq.queued")
        cleared = {(s["last_error"], s["reserved_at"], s["lease_expires_at"], s["failure_count"]) for s in requeued}
        assert cleared == {("Lease expired", None, None, 1)}


async def test_ops_claim_next_step() -> None:
    async with loop() as ops:
        assert await ops.rpc("ops_claim_next_step", p_lease_minutes=5) == []
        await ops.mission({"kind": "noop"})
        (step,) = await ops.rpc("ops_claim_next_step", p_lease_minutes=5)
        (row,) = await ops.rows("ops_mission_steps")
        assert step == {**row, "lease_id": step["lease_id"]}
        assert (row["status"], row["reserved_at"]) == ("running", row["updated_at"])
        assert row["lease_expires_at"] == row["reserved_at"].replace("22:13:20", "22:18:20")
        # The worker of the example: execute, then update status and result.
        body = {"lease_id": step["lease_id"], "status": "succeeded", "result": {"answer": 42}}
        await ops.answer("POST", f"ops_mission_steps/{step['id']}/complete", body)
        (row,) = await ops.rows("ops_mission_steps")
        assert (row["status"], row["result"]) == ("succeeded", {"answer": 42})


async def test_ops_extract_step_kinds() -> None:
    async with loop() as ops:
        steps: list[Any] = [{"kind": kind, "params": {}} for kind in ("openclaw", "wreckit", "openclaw")]
        assert await ops.rpc("ops_extract_step_kinds", p_template={"steps": steps}) == ["openclaw", "wreckit"]
        assert await ops.rpc("ops_extract_step_kinds", p_template={}) == []
        without: list[Any] = [{"steps": "none"}, [], "text"]
        for invalid in without:
            assert await ops.rpc("ops_extract_step_kinds", p_template=invalid) is None


async def test_ops_set_updated_at() -> None:
    async with loop() as ops:
        await ops.mission({"kind": "noop"})

        async def updated() -> list[Any]:
            tables = ("ops_missions", "ops_mission_steps")
            return [(await ops.rows(f"{table}?select=updated_at,created_at"))[0] for table in tables]

        assert [row["updated_at"] == row["created_at"] for row in await updated()] == [True, True]
        ops.w.clock.advance(MINUTE_MS)
        await ops.claim()
        later = await updated()
        assert [row["updated_at"] > row["created_at"] for row in later] == [True, True]
        ops.w.clock.advance(MINUTE_MS)
        await ops.w.drain()
        assert await updated() == later, "nothing was updated"


async def test_post_api_ops_heartbeat() -> None:
    async with loop() as ops:
        responded = await ops.ask("POST", "heartbeat", {})
        assert (responded.status, responded.json()) == (
            200,
            {
                "ok": True,
                "triggerResult": {"events": 0, "queued": 0},
                "reactionResult": {"processed": 0, "created": 0},
                "learningResult": {"promoted": 0},
                "leaseResult": {"requeued_steps": 0, "failed_steps": 0},
                "staleResult": {"recovered": 0},
            },
        )
        assert list(responded.json()) == [
            "ok", "triggerResult", "reactionResult", "learningResult", "leaseResult", "staleResult",
        ]  # fmt: skip
        for step, minutes in (({"max_retries": 1}, 1), ({}, 1), ({}, 90)):
            await ops.mission({"kind": "noop", **step})
            await ops.claim(minutes=minutes)
        ops.w.clock.advance(31 * MINUTE_MS)
        beat = await ops.answer("POST", "heartbeat", {})
        assert beat["leaseResult"] == {"requeued_steps": 1, "failed_steps": 1}
        assert beat["staleResult"] == {"recovered": 1}
        without_body = await ops.w.request("POST", "/api/ops/heartbeat")
        assert without_body.status == 200
        await ops.key()
        for headers in ({}, {"Authorization": "Bearer YOUR_OPS_API_KEY"}):
            refused = await ops.ask("POST", "heartbeat", {}, headers)
            assert (refused.status, refused.json()) == (401, {"error": "Unauthorized"})
        wrong = await ops.ask("GET", "heartbeat")
        assert (wrong.status, wrong.json()) == (405, {"error": "Method not allowed"})
