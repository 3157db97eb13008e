"""The tool calls of a turn. Each is a step of its tick; a dangerous one first needs approval."""

from typing import Any

from clogs.agent.records import AgentState, PendingCall, offered_name, refusal_message, result_message
from clogs.models import Message, ModelError
from ocean import Approval, Tick, ToolSpec, redacted


async def act(tick: Tick, state: AgentState) -> list[Message]:
    """Make the calls that can be made now and return their results as messages. Request approval for the others."""
    messages: list[Message] = []
    specs = {spec.name: spec for spec in tick.tools.usable()}
    for call in state.wanted:
        if call.standing in ("asked", "answered"):
            continue
        message = await _call_tool(tick, state, call, specs)
        if message is not None:
            call.standing = "answered"
            messages.append(message)
    return messages


async def _call_tool(tick: Tick, state: AgentState, call: PendingCall, specs: dict[str, ToolSpec]) -> Message | None:
    """Make one call and return its result as a message; None if approval was requested instead."""
    name = offered_name(state.tools, call.call.name)
    if name is None:
        available = ", ".join(state.tools) or "none"
        return refusal_message(call, "unknown_tool", f"there is no tool {call.call.name!r}; available: {available}")
    try:
        input = call.call.parsed()
    except ModelError as error:
        return refusal_message(call, error.code, error.message)
    if call.standing in ("rejected", "expired"):
        return refusal_message(call, f"approval_{call.standing}", _why_not_made(call))
    spec = specs.get(name)
    if spec is not None and spec.dangerous and call.standing == "open":
        await _request_approval(tick, state, call, spec, input)
        return None
    approval = Approval(call.by, call.fingerprint) if call.standing == "approved" else None
    result = await tick.tools.attempt(name, input, step=f"call {call.approval_id}", approval=approval)
    return result_message(call, result, state.most_result_chars)


def _why_not_made(call: PendingCall) -> str:
    if call.standing == "expired":
        return "this call was not approved in time and was not made"
    return f"this call was rejected and not made{f': {call.reason}' if call.reason else ''}"


async def _request_approval(
    tick: Tick, state: AgentState, call: PendingCall, spec: ToolSpec, input: dict[str, Any]
) -> None:
    call.standing, call.tool = "asked", spec.name
    call.fingerprint = tick.tools.fingerprint(spec.name, input)
    call.expires_at = tick.now + state.settings.approval_ms
    await tick.set_timer(call.timer, at=call.expires_at)
    await tick.emit(
        "approval.requested",
        {
            "approval_id": call.approval_id,
            "tool": spec.name,
            "description": spec.description,
            "input": redacted(input),
            "fingerprint": call.fingerprint,
            "expires_at": call.expires_at,
            "on_expiry": state.settings.on_expiry,
        },
    )
