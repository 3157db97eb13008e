"""Proposals: dedupe, caps, the gate, the tree of auto-approval, decisions by hand and by vote."""

from typing import Any

import anyio
import pytest

from clogs.ops import OpsSettings, clogs
from clogs.ops.policies import AutoApprove, is_auto_approvable
from ocean import Caller, CallRefused
from tests.clogs.ops.kit import DAY_MS, EVERYTHING, HOUR_MS, PROPOSE, Loop, loop

pytestmark = pytest.mark.anyio

NOOP = {"kind": "noop"}
VOTING = {"key": "voting_policy", "value": {"enabled": True}}


def caps(**value: Any) -> dict[str, Any]:
    return {"key": "proposal_caps", "value": value}


async def test_the_same_dedupe_key_returns_the_first_proposal_with_its_mission() -> None:
    async with loop() as ops:
        await ops.put(EVERYTHING)
        first = await ops.propose(key="deploy-7")
        again = await ops.propose({"kind": "other"}, key="deploy-7", source="api")
        assert again == first
        assert first["mission_id"] is not None
        assert len(await ops.rows("ops_mission_proposals")) == len(await ops.rows("ops_missions")) == 1


async def test_a_thousand_proposals_at_once_against_a_cap_of_a_hundred_give_exactly_a_hundred() -> None:
    async with loop() as ops:
        await ops.put(caps(daily_limit=100))
        template = {"steps": [NOOP]}
        statuses: list[str] = []

        async def propose(number: int) -> None:
            request = {"dedupe_key": f"p-{number}", "source": "api", "template": template}
            made = await ops.w.ocean.call_clog(
                clog_id="ops-proposals", session_id="ops", method="create", payload=request
            )
            statuses.append(made["status"])

        async with anyio.create_task_group() as tasks:
            for number in range(1_000):
                tasks.start_soon(propose, number)
        assert (statuses.count("pending"), statuses.count("rejected")) == (100, 900)
        pending = await ops.w.ocean.count_runs(clog_id="ops-proposals", attributes={"state": "pending"})
        assert pending.count == 100


async def test_the_cap_counts_created_proposals_only_and_is_reset_at_midnight() -> None:
    async with loop() as ops:
        await ops.put(caps(daily_limit=2, per_source_limits={"api": 1}))
        assert (await ops.propose(source="api", key="a"))["status"] == "pending"
        for _ in range(3):
            assert (await ops.propose(source="api", key="a"))["status"] == "pending", "a replay counts nothing"
        by_source = await ops.propose(source="api")
        assert (by_source["status"], by_source["reason"]) == ("rejected", "Daily proposal cap reached for source api")
        assert (await ops.propose())["status"] == "pending", "a rejected one counts nothing"
        over = await ops.propose()
        assert (over["status"], over["reason"], over["mission_id"]) == ("rejected", "Daily proposal cap reached", None)
        until_midnight = DAY_MS - ops.w.clock.now() % DAY_MS
        ops.w.clock.advance(until_midnight - 1)
        assert (await ops.propose())["status"] == "rejected"
        ops.w.clock.advance(1)
        assert (await ops.propose())["status"] == "pending"


async def test_a_cap_that_is_set_at_noon_has_counted_the_morning_and_one_of_zero_lets_nothing_through() -> None:
    async with loop() as ops:
        await ops.propose()
        await ops.put(caps(daily_limit=1))
        assert (await ops.propose())["status"] == "rejected"
        await ops.put({**caps(daily_limit=0), "version": 1})
        ops.w.clock.advance(DAY_MS)
        assert (await ops.propose())["status"] == "rejected"


@pytest.mark.parametrize(
    ("policy", "template", "is_approved"),
    [
        (None, {"steps": [NOOP]}, False),
        (AutoApprove(enabled=False), {"steps": [NOOP]}, False),
        (AutoApprove(enabled=True), {"steps": [NOOP]}, True),
        (AutoApprove(enabled=True), {"steps": []}, False),
        (AutoApprove(enabled=True), {}, False),
        (AutoApprove(enabled=True), {"steps": [{"params": {}}]}, False),
        (AutoApprove(enabled=True, allowed_step_kinds=["noop"]), {"steps": [NOOP, NOOP]}, True),
        (AutoApprove(enabled=True, allowed_step_kinds=["noop"]), {"steps": [NOOP, {"kind": "rm"}]}, False),
        (AutoApprove(enabled=True, allowed_step_kinds=[]), {"steps": [NOOP]}, False),
        (AutoApprove(enabled=True, max_risk_level="medium"), {"steps": [NOOP], "risk_level": "medium"}, True),
        (AutoApprove(enabled=True, max_risk_level="medium"), {"steps": [NOOP], "risk_level": "high"}, False),
        (AutoApprove(enabled=True, max_risk_level="medium"), {"steps": [NOOP]}, False),
    ],
)
def test_the_tree_of_auto_approval(policy: AutoApprove | None, template: Any, is_approved: bool) -> None:
    assert is_auto_approvable(policy, template) is is_approved


async def test_a_pending_proposal_is_decided_once() -> None:
    async with loop() as ops:
        made = await ops.propose()
        path = f"ops_mission_proposals/{made['proposal_id']}"
        approved = await ops.answer("POST", f"{path}/approve", {"reason": "looks good"})
        assert (approved["status"], approved["reason"]) == ("approved", "looks good")
        assert await ops.mission_status(approved["mission_id"]) == "approved"
        for verb in ("approve", "reject"):
            assert await ops.refusal("POST", f"{path}/{verb}") == (409, "P0001")
        rejected = await ops.propose()
        content = await ops.answer("POST", f"ops_mission_proposals/{rejected['proposal_id']}/reject", {"reason": "no"})
        assert (content["status"], content["reason"], content["mission_id"]) == ("rejected", "no", None)
        assert await ops.refusal("POST", f"ops_mission_proposals/{rejected['proposal_id']}/approve") == (409, "P0001")
        assert len(await ops.rows("ops_missions")) == 1


async def test_two_concurrent_approvals_make_one_mission() -> None:
    async with loop() as ops:
        id = (await ops.propose())["proposal_id"]
        responses: list[str] = []

        async def approve(name: str) -> None:
            try:
                await ops.ops.approve(id, caller=Caller(name))
                responses.append("approved")
            except CallRefused as refused:
                responses.append(refused.code)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(approve, f"human-{number}")
        assert sorted(responses) == ["P0001"] * 7 + ["approved"]
        assert len(await ops.rows("ops_missions")) == 1


async def test_an_approval_is_repeatable_under_an_idempotency_key() -> None:
    async with loop() as ops:
        path = f"ops_mission_proposals/{(await ops.propose())['proposal_id']}/approve"
        key = {"Idempotency-Key": "k-1"}
        responses = [await ops.ask("POST", path, {}, key) for _ in range(2)]
        assert [(answer.status, answer.json()["status"]) for answer in responses] == [(200, "approved")] * 2


async def test_approval_rules_are_those_of_the_snapshot_and_caps_those_of_now() -> None:
    async with loop() as ops:
        await ops.put(VOTING)
        id = (await ops.propose(risk_level="low"))["proposal_id"]
        await ops.put({"key": "voting_policy", "value": {"enabled": False}, "version": 1}, caps(daily_limit=1))
        ann = await ops.key("lead")
        voted = await ops.ask("POST", f"ops_mission_proposals/{id}/vote", {"vote": "approve"}, ann)
        assert (voted.status, voted.json()["status"]) == (200, "approved")
        ops.headers = ann
        assert (await ops.propose())["status"] == "rejected", "the cap was set after the snapshot, and holds"


async def voters(ops: Loop, *roles: str) -> dict[str, dict[str, str]]:
    return {role: await ops.key(role, scopes=("signal",), actor=f"of {role}") for role in roles}


@pytest.mark.parametrize(("risk", "needed"), [("low", 1), ("medium", 2), ("high", 3), (None, 3)])
async def test_the_number_of_approvals_depends_on_the_risk(risk: str | None, needed: int) -> None:
    async with loop() as ops:
        await ops.put(VOTING)
        more = {} if risk is None else {"risk_level": risk}
        made = await ops.propose(**more)
        keys = await voters(ops, "a", "b", "c")
        ops.headers = await ops.key()
        assert made["status"] == "pending"
        (request,) = await ops.rows("ops_agent_events?type=eq.proposal:vote_requested")
        assert request["data"]["approvals_needed"] == needed
        for number, key in enumerate(list(keys.values())[:needed], 1):
            path = f"ops_mission_proposals/{made['proposal_id']}/vote"
            voted = (await ops.ask("POST", path, {"vote": "approve"}, key)).json()
            assert (voted["status"], voted["approvals_needed"]) == (
                "approved" if number == needed else "pending",
                needed,
            )
        assert len(await ops.rows("ops_missions")) == 1


async def test_any_reject_vetoes_a_role_has_one_vote_and_the_role_is_that_of_the_key() -> None:
    async with loop() as ops:
        await ops.put(VOTING)
        id = (await ops.propose())["proposal_id"]
        keys = await voters(ops, "dev", "qa")
        both = await ops.key("dev", "qa", scopes=("signal",))
        without_role = await ops.key(scopes=("signal",))

        async def vote(key: dict[str, str], vote: str, **more: str) -> tuple[int, str]:
            content = await ops.ask("POST", f"ops_mission_proposals/{id}/vote", {"vote": vote, **more}, key)
            return content.status, content.json().get("status", content.json().get("code"))

        assert await vote(without_role, "approve") == (403, "no_role")
        assert await vote(keys["dev"], "approve", role="qa") == (403, "no_role")
        assert await vote(both, "approve") == (400, "22023")
        assert await vote(both, "maybe", role="dev") == (400, "22023")
        assert await vote(keys["dev"], "approve") == (200, "pending")
        assert await vote(both, "approve", role="dev") == (200, "pending"), "the role's vote again, which counts once"
        assert await vote(both, "reject", role="dev") == (409, "P0001")
        assert await vote(keys["qa"], "reject") == (200, "rejected")
        assert await vote(keys["qa"], "reject") == (200, "rejected")
        assert await vote(both, "approve", role="qa") == (409, "P0001")
        ops.headers = await ops.key()
        (row,) = await ops.rows(f"ops_mission_proposals?id=eq.{id}")
        assert (row["reason"], await ops.rows("ops_missions")) == ("Vetoed by qa", [])


async def test_votes_past_the_threshold_make_no_second_mission() -> None:
    async with loop() as ops:
        await ops.put(VOTING)
        id = (await ops.propose(risk_level="low"))["proposal_id"]
        keys = await voters(ops, *"abcdef")
        statuses: list[int] = []

        async def vote(key: dict[str, str], choice: str) -> None:
            statuses.append((await ops.ask("POST", f"ops_mission_proposals/{id}/vote", {"vote": choice}, key)).status)

        async with anyio.create_task_group() as tasks:
            for role, key in keys.items():
                tasks.start_soon(vote, key, "reject" if role == "f" else "approve")
        ops.headers = await ops.key()
        (row,) = await ops.rows(f"ops_mission_proposals?id=eq.{id}")
        assert sorted(statuses) == [200] + [409] * 5, "the first decides, the rest come too late"
        assert len(await ops.rows("ops_missions")) == (row["status"] == "approved")


async def test_without_voting_there_is_no_vote() -> None:
    async with loop() as ops:
        id = (await ops.propose())["proposal_id"]
        key = await ops.key("lead")
        content = await ops.ask("POST", f"ops_mission_proposals/{id}/vote", {"vote": "approve"}, key)
        assert (content.status, content.json()["code"]) == (409, "P0001")


async def test_the_generic_routes_cannot_create_a_mission_or_approve() -> None:
    async with loop() as ops:
        id = (await ops.propose())["proposal_id"]
        requests = [
            ("/v1/runs", {"sessionId": "ops", "clogId": "ops-missions", "input": {}}),
            ("/v1/runs", {"sessionId": "ops", "clogId": "ops-proposals", "input": {"status": "auto_approved"}}),
            (f"/v1/runs/{id}/call/approve", {"payload": {"reason": None}}),
            (f"/v1/runs/{id}/signal", {"input": {"do": "approve"}}),
            (f"/v1/runs/{id}/cancel", {}),
            ("/v1/clogs/ops-proposals/call/create", {"sessionId": "ops", "payload": {}}),
            ("/v1/clogs/ops-policy/call/put", {"sessionId": "ops", "payload": []}),
            ("/v1/leases", {"clogId": "ops-attempts", "workerId": "w"}),
        ]
        for path, body in requests:
            answer = await ops.w.request("POST", path, json=body)
            assert (answer.status, answer.json()["error"]["code"]) == (403, "not_generic"), path
        (row,) = await ops.rows("ops_mission_proposals")
        assert row["status"] == "pending"


async def test_every_clog_of_the_system_keeps_its_runs_to_itself() -> None:
    async with loop() as ops:
        allowed = {clog.clog_id: clog.allows for clog in clogs(OpsSettings())}
        assert set(allowed.values()) == {frozenset()}
        await ops.w.drain()


@pytest.mark.sqlite
async def test_a_proposal_is_shown_whole_from_the_moment_it_exists() -> None:
    async with loop() as ops:
        request = {"dedupe_key": "k", "source": "api", "template": {"steps": [NOOP]}}
        await ops.w.ocean.call_clog(clog_id="ops-proposals", session_id="ops", method="create", payload=request)
        before = await ops.rows("ops_mission_proposals")
        again = await ops.rpc(PROPOSE, p_dedupe_key="k", p_source="api", p_template={"steps": [NOOP]})
        assert again[0]["proposal_id"] == before[0]["id"]
        assert await ops.rows("ops_mission_proposals") == before
        ops.w.clock.advance(HOUR_MS)
