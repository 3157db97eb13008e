"""Approval of dangerous tool calls: each is decided once, by a named caller, before it expires."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clogs.agent.records import AgentState, ClosedApproval, PendingCall
from ocean import Clog, Refuse, Tick


class ApprovalDecision(BaseModel):
    """The payload of `approve` and `reject`. `fingerprint`, if given, must be that of the request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    approval_id: str
    reason: str = Field(default="", max_length=2_000)
    fingerprint: str | None = None


def add_approvals(clog: Clog, approver_role: str | None) -> None:
    """Add the methods `approve`, `reject` and `approvals`. With a role, only callers who have it may decide."""

    async def decide(tick: Tick, payload: Any, verdict: Literal["approved", "rejected"]) -> str:
        if approver_role is not None and approver_role not in tick.caller.roles:
            raise Refuse(
                f"the caller must have the role {approver_role!r} to decide", code="not_an_approver", http_status=403
            )
        decision = _read(payload)
        state: AgentState = (await tick.read(run=True)).run
        call = _find_open(state, decision)
        call.by, call.reason = tick.caller.actor, decision.reason
        await close(tick, state, call, verdict)
        await tick.cancel_timer(call.timer)
        await tick.write(run=state)
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
        """Return the open requests: id, tool and expiry. The tool's input is in the event `approval.requested`."""
        state: AgentState | None = (await tick.read(run=True)).run
        waiting = state.waiting if state else []
        return [{"approval_id": each.approval_id, "tool": each.tool, "expires_at": each.expires_at} for each in waiting]


async def close(tick: Tick, state: AgentState, call: PendingCall, decision: str) -> None:
    """Close a request that was decided, that expired, or whose run ended. Only an approved call is made."""
    call.standing = "approved" if decision == "approved" else "expired" if decision == "expired" else "rejected"
    state.decided[call.approval_id] = ClosedApproval(decision=decision, by=call.by)
    await tick.emit(
        "approval.decided",
        {
            "approval_id": call.approval_id,
            "tool": call.tool,
            "decision": decision,
            "by": call.by,
            "reason": call.reason,
        },
    )


def _read(payload: Any) -> ApprovalDecision:
    try:
        return ApprovalDecision.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "payload"
        raise Refuse(f"{where}: {first['msg']}", code="bad_decision", http_status=400) from None


def _find_open(state: AgentState | None, decision: ApprovalDecision) -> PendingCall:
    open_calls = {each.approval_id: each for each in (state.waiting if state else [])}
    if state is not None and (earlier := state.decided.get(decision.approval_id)):
        by = f" by {earlier.by}" if earlier.by else ""
        raise Refuse(
            f"request {decision.approval_id!r} is already {earlier.decision}{by}",
            code="already_decided",
            details=earlier.model_dump(),
        )
    call = open_calls.get(decision.approval_id)
    if call is None:
        raise Refuse(
            f"there is no open request {decision.approval_id!r}; open: {', '.join(open_calls) or 'none'}",
            code="unknown_approval",
            http_status=404,
            details={"waiting": [*open_calls]},
        )
    if decision.fingerprint not in (None, call.fingerprint):
        raise Refuse("fingerprint must be that of the open request; read approval.requested again", code="another_call")
    return call
