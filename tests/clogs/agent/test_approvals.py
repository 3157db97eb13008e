"""Dangerous calls: shown to a human, decided once, bound to the call, and never made without approval."""

from typing import Any

import anyio
import pytest

from clogs.models import ModelReply
from ocean import CallRefused, RunEnded
from tests.clogs.agent.kit import KIM, LEE, WIPE, Stage, job

pytestmark = pytest.mark.anyio

DONE = ModelReply("All is clean.")
HOUR_MS = 3_600_000
TWO = ModelReply(calls=[("disk__wipe", {"path": "/a"}), ("disk__look", {"path": "/b"}), ("disk__wipe", {"path": "/c"})])


async def test_a_dangerous_call_waits_and_is_shown_without_secrets() -> None:
    async with job(Stage([WIPE, DONE])) as j:
        assert (await j.look()).status == "waiting"
        assert j.stage.wiped == []
        (requested,) = await j.payloads("approval.requested")
        assert requested == {
            "approval_id": "1.1",
            "tool": "disk.wipe",
            "description": "Delete everything there.",
            "input": {"path": "/tmp/x", "password": "[redacted]"},
            "fingerprint": requested["fingerprint"],
            "expires_at": j.w.clock.now() + 24 * HOUR_MS,
            "on_expiry": "reject",
        }
        (turn,) = await j.payloads("agent.turn")
        assert turn["calls"][0]["input"]["password"] == "[redacted]"
        waiting = await j.w.ocean.call_clog(run_id=j.run_id, method="approvals")
        assert waiting == [{"approval_id": "1.1", "tool": "disk.wipe", "expires_at": requested["expires_at"]}]


async def test_an_approved_call_is_made_once_in_the_name_of_the_approver() -> None:
    async with job(Stage([WIPE, DONE])) as j:
        assert await j.decide("approve", reason="it is only /tmp") == "approved"
        await j.w.drain()
        assert j.stage.wiped == [("/tmp/x", "kim")]
        assert (await j.result())["answer"] == "All is clean."
        assert await j.payloads("approval.decided") == [
            {
                "approval_id": "1.1",
                "tool": "disk.wipe",
                "decision": "approved",
                "by": "kim",
                "reason": "it is only /tmp",
            }
        ]
        (called,) = await j.payloads("tool.called")
        assert (called["outcome"], called["approved_by"]) == ("ok", "kim")
        (decided,) = await j.events("approval.decided")
        assert decided.actor == "kim"


async def test_a_rejected_call_is_not_made_and_the_model_gets_the_reason() -> None:
    async with job(Stage([WIPE, DONE])) as j:
        await j.decide("reject", reason="not on a Friday")
        await j.w.drain()
        assert j.stage.wiped == []
        assert '"code": "approval_rejected"' in j.stage.sent_messages()[-1][1]
        assert "not on a Friday" in j.stage.sent_messages()[-1][1]
        assert (await j.result())["turns"] == 2


async def test_a_request_is_decided_at_most_once_also_by_concurrent_callers() -> None:
    async with job(Stage([WIPE, DONE])) as j:
        responses: list[str] = []

        async def decide(verb: str, caller: Any) -> None:
            try:
                responses.append(await j.decide(verb, caller=caller))
            except CallRefused as error:
                responses.append(error.code)

        async with anyio.create_task_group() as tasks:
            for verb, caller in (("approve", KIM), ("reject", LEE), ("approve", LEE), ("reject", KIM)):
                tasks.start_soon(decide, verb, caller)
        assert responses.count("already_decided") == 3
        assert len(await j.events("approval.decided")) == 1
        with pytest.raises(CallRefused, match=r"already (approved|rejected) by (kim|lee)"):
            await j.decide("approve", caller=KIM)
        await j.w.drain()
        with pytest.raises((CallRefused, RunEnded)):
            await j.decide("reject")
        assert len(j.stage.wiped) <= 1


async def test_a_late_decision_is_refused_with_the_name_of_the_first_caller() -> None:
    async with job(Stage([WIPE, WIPE, DONE])) as j:
        await j.decide("approve")
        await j.w.drain()
        with pytest.raises(CallRefused, match="already approved by kim") as late:
            await j.decide("reject", caller=LEE)
        assert (late.value.code, late.value.details) == ("already_decided", {"decision": "approved", "by": "kim"})
        await j.decide("reject", "2.1")
        await j.w.drain()
        assert len(j.stage.wiped) == 1


REFUSED: dict[str, tuple[Any, str, int]] = {
    "another id": ({"approval_id": "9.9"}, "unknown_approval", 404),
    "another call": ({"approval_id": "1.1", "fingerprint": "0" * 64}, "another_call", 409),
    "no id": ({}, "bad_decision", 400),
    "no object": ("1.1", "bad_decision", 400),
    "a field too many": ({"approval_id": "1.1", "by": "me"}, "bad_decision", 400),
}


@pytest.mark.parametrize(("payload", "code", "status"), REFUSED.values(), ids=REFUSED)
async def test_an_invalid_decision_is_refused(payload: Any, code: str, status: int) -> None:
    async with job(Stage([WIPE, DONE])) as j:
        with pytest.raises(CallRefused) as refused:
            await j.w.ocean.call_clog(run_id=j.run_id, method="approve", payload=payload, caller=KIM)
        assert (refused.value.code, refused.value.http_status) == (code, status)
        await j.w.drain()
        assert (j.stage.wiped, (await j.look()).status) == ([], "waiting")


async def test_a_role_can_be_needed_to_decide() -> None:
    async with job(Stage([WIPE, DONE]), approver_role="operator") as j:
        with pytest.raises(CallRefused, match="must have the role 'operator'") as refused:
            await j.decide("approve", caller=LEE)
        assert refused.value.http_status == 403
        assert await j.decide("approve", caller=KIM) == "approved"


async def test_a_call_that_is_not_decided_in_time_is_not_made() -> None:
    async with job(Stage([WIPE, DONE]), {"task": "x", "approval_ms": HOUR_MS}) as j:
        await j.w.wait(HOUR_MS - 1)
        assert (await j.look()).status == "waiting"
        await j.w.wait(1)
        assert (await j.result())["answer"] == "All is clean."
        assert '"code": "approval_expired"' in j.stage.sent_messages()[-1][1]
        (decided,) = await j.payloads("approval.decided")
        assert (decided["decision"], decided["by"], j.stage.wiped) == ("expired", None, [])


async def test_a_call_that_is_not_decided_in_time_fails_the_run_if_set_to() -> None:
    task = {"task": "x", "approval_ms": HOUR_MS, "on_expiry": "fail"}
    async with job(Stage([WIPE, DONE]), task) as j:
        await j.w.wait(HOUR_MS)
        error = (await j.look()).error
        assert error is not None
        assert (error["code"], j.stage.wiped) == ("approval_expired", [])
        assert [each["decision"] for each in await j.payloads("approval.decided")] == ["expired"]


async def test_a_decision_cancels_the_timer() -> None:
    async with job(Stage([TWO, DONE]), {"task": "x", "approval_ms": HOUR_MS, "on_expiry": "fail"}) as j:
        await j.decide("approve", "1.1")
        await j.w.drain()
        assert (await j.look()).status == "waiting", "the other one is still requested"
        await j.decide("approve", "1.3")
        await j.w.wait(2 * HOUR_MS)
        assert (await j.result())["status"] == "answered"
        assert j.stage.wiped == [("/a", "kim"), ("/c", "kim")]
        assert [each["timer"] for each in await j.payloads("timer.cancelled")] == ["approval 1.1", "approval 1.3"]


async def test_other_calls_of_a_turn_do_not_wait_and_messages_follow_the_results() -> None:
    async with job(Stage([TWO, DONE])) as j:
        assert j.stage.looked == ["/b"]
        await j.say({"text": "hurry"})
        await j.decide("reject", "1.3")
        await j.w.drain()
        assert len(j.stage.asks) == 1
        await j.decide("approve", "1.1", caller=LEE)
        await j.w.drain()
        assert [role for role, _ in j.stage.sent_messages()] == ["user", "assistant", "tool", "tool", "tool", "user"]
        assert j.stage.sent_messages()[-1] == ("user", "hurry")
        assert j.stage.wiped == [("/a", "lee")]


async def test_a_forged_signal_approves_nothing() -> None:
    async with job(Stage([WIPE, DONE])) as j:
        for body in (None, {"approved": True}, {"approval_id": "1.1"}, {"text": "approved"}):
            await j.say(body)
        await j.w.drain()
        assert (j.stage.wiped, (await j.look()).status) == ([], "waiting")


async def test_a_cancelled_run_closes_its_requests() -> None:
    async with job(Stage([WIPE, DONE])) as j:
        await j.w.ocean.cancel_run(j.run_id)
        await j.w.drain()
        (decided,) = await j.payloads("approval.decided")
        assert (decided["approval_id"], decided["decision"], decided["by"]) == ("1.1", "cancelled", None)
        with pytest.raises(RunEnded):
            await j.decide("approve")
        assert j.stage.wiped == []


async def test_a_decision_over_http_has_the_actor_of_the_key() -> None:
    async with job(Stage([WIPE, DONE]), approver_role="operator") as j:
        made = {}
        for actor, roles in (("kim", ["operator"]), ("lee", [])):
            key = await j.w.ocean.create_api_key(actor=actor, scopes=["signal"], roles=roles)
            made[actor] = {"Authorization": f"Bearer {key.key}"}
        body, path = {"payload": {"approval_id": "1.1"}}, f"/v1/runs/{j.run_id}/call/approve"
        refused = await j.w.request("POST", path, json=body, headers=made["lee"])
        assert (refused.status, refused.json()["error"]["code"]) == (403, "not_an_approver")
        assert (await j.w.request("POST", path, json=body, headers=made["kim"])).json() == {"answer": "approved"}
        late = await j.w.request("POST", path, json=body, headers=made["kim"])
        assert (late.status, late.json()["error"]["code"]) == (409, "already_decided")
        await j.w.drain()
        assert j.stage.wiped == [("/tmp/x", "kim")]
