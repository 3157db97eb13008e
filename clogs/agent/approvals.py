"""A human's part: each call that needs one is decided once, by name, before it expires."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clogs.agent.records import AgentState, ClosedApproval, PendingCall
from ocean import Clog, Refuse, Tick


class ApprovalDecision(BaseModel):
    """`fingerprint`, if given, must be the one of the request that was looked at."""

    model_config = ConfigDict(extra="forbid", strict=True)

    approval_id: str
    reason: str = Field(default="", max_length=2_000)
    fingerprint: str | None = None


def add_approvals(clog: Clog, approver_role: str | None) -> None:
    """The methods `approve`, `reject` and `approvals`. With a role, only callers who have it may decide."""

    async def decide(tick: Tick, payload: Any, verdict: Literal["approved", "rejected"]) -> str:
        if approver_role is not None and approver_role not in tick.caller.roles:
            raise Refuse(f"deciding needs the role {approver_role!r}", code="not_an_approver", http_status=403)
        decision = _read(payload)
        work: AgentState = (await tick.read(run=True)).run
        wanted = _found(work, decision)
        wanted.by, wanted.reason = tick.caller.actor, decision.reason
        await close(tick, work, wanted, verdict)
        await tick.cancel_timer(wanted.timer)
        await tick.write(run=work)
        await tick.signal(tick.run_id)
        return verdict

    @clog.method
    async def approve(tick: Tick, payload: Any) -> str:
        return await decide(tick, payload, "approved")

    @clog.method
    async def reject(tick: Tick, payload: Any) -> str:
        return await decide(tick, payload, "rejected")

    @clog.method
    async def approvals(tick: Tick, payload: Any) -> list[Any]:
        """What waits for a decision: ids and when they expire. What is wanted is in `approval.requested`."""
        work: AgentState | None = (await tick.read(run=True)).run
        waiting = work.asked if work else []
        return [{"approval_id": each.approval_id, "tool": each.tool, "expires_at": each.expires_at} for each in waiting]


async def close(tick: Tick, work: AgentState, wanted: PendingCall, decision: str) -> None:
    """The request is over: by somebody's decision, by time, or with the run. What is not decided on stays undone."""
    wanted.standing = "approved" if decision == "approved" else "expired" if decision == "expired" else "rejected"
    work.decided[wanted.approval_id] = ClosedApproval(decision=decision, by=wanted.by)
    await tick.emit(
        "approval.decided",
        {
            "approval_id": wanted.approval_id,
            "tool": wanted.tool,
            "decision": decision,
            "by": wanted.by,
            "reason": wanted.reason,
        },
    )


def _read(payload: Any) -> ApprovalDecision:
    try:
        return ApprovalDecision.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "payload"
        raise Refuse(f"{where}: {first['msg']}", code="bad_decision", http_status=400) from None


def _found(work: AgentState | None, decision: ApprovalDecision) -> PendingCall:
    asked = {each.approval_id: each for each in (work.asked if work else [])}
    if work is not None and (earlier := work.decided.get(decision.approval_id)):
        by = f" by {earlier.by}" if earlier.by else ""
        raise Refuse(f"already {earlier.decision}{by}", code="already_decided", details=earlier.model_dump())
    wanted = asked.get(decision.approval_id)
    if wanted is None:
        raise Refuse(
            f"nothing waits for a decision under {decision.approval_id!r}; there are: {', '.join(asked) or 'none'}",
            code="unknown_approval",
            http_status=404,
            details={"waiting": [*asked]},
        )
    if decision.fingerprint not in (None, wanted.fingerprint):
        raise Refuse("what is asked for is another call than the one decided on", code="another_call")
    return wanted
