"""The tool calls of a turn: made, or shown to a human first. Each is a step of its tick."""

from typing import Any

from clogs.agent.records import AgentState, PendingCall, offered_name, refusal_message, result_message
from clogs.models import Message, ModelError
from ocean import Approval, Tick, ToolSpec, redacted


async def act(tick: Tick, work: AgentState) -> list[Message]:
    """Do what can be done now, and answer what the model is told of it. Calls that need a human are asked for."""
    told: list[Message] = []
    specs = {spec.name: spec for spec in tick.tools.usable()}
    for wanted in work.wanted:
        if wanted.standing in ("asked", "answered"):
            continue
        message = await _answered(tick, work, wanted, specs)
        if message is not None:
            wanted.standing = "answered"
            told.append(message)
    return told


async def _answered(tick: Tick, work: AgentState, wanted: PendingCall, specs: dict[str, ToolSpec]) -> Message | None:
    """None if a human is asked first."""
    name = offered_name(work.tools, wanted.call.name)
    if name is None:
        there_are = ", ".join(work.tools) or "none"
        return refusal_message(wanted, "unknown_tool", f"there is no tool {wanted.call.name!r}; there are: {there_are}")
    try:
        input = wanted.call.parsed()
    except ModelError as error:
        return refusal_message(wanted, error.code, error.message)
    if wanted.standing in ("rejected", "expired"):
        return refusal_message(wanted, f"approval_{wanted.standing}", _unapproved(wanted))
    spec = specs.get(name)
    if spec is not None and spec.dangerous and wanted.standing == "open":
        await _ask(tick, work, wanted, spec, input)
        return None
    approval = Approval(wanted.by, wanted.fingerprint) if wanted.standing == "approved" else None
    result = await tick.tools.attempt(name, input, step=f"call {wanted.approval_id}", approval=approval)
    return result_message(wanted, result, work.room)


def _unapproved(wanted: PendingCall) -> str:
    if wanted.standing == "expired":
        return "nobody approved this call in time; it was not made"
    return f"this call was rejected and not made{f': {wanted.reason}' if wanted.reason else ''}"


async def _ask(tick: Tick, work: AgentState, wanted: PendingCall, spec: ToolSpec, input: dict[str, Any]) -> None:
    wanted.standing, wanted.tool = "asked", spec.name
    wanted.fingerprint = tick.tools.fingerprint(spec.name, input)
    wanted.expires_at = tick.now + work.settings.approval_ms
    await tick.set_timer(wanted.timer, at=wanted.expires_at)
    await tick.emit(
        "approval.requested",
        {
            "approval_id": wanted.approval_id,
            "tool": spec.name,
            "description": spec.description,
            "input": redacted(input),
            "fingerprint": wanted.fingerprint,
            "expires_at": wanted.expires_at,
            "on_expiry": work.settings.on_expiry,
        },
    )
