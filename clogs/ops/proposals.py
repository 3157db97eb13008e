"""Proposals: capped, then approved by policy, by a human or by vote. A proposal has at most one mission."""

import uuid
from typing import Any

from clogs.ops.errors import not_now, wrong
from clogs.ops.policies import (
    CAP_REACHED,
    ProposalCaps,
    auto_approve_of,
    caps_of,
    is_auto_approvable,
    snapshot,
    voting_of,
)
from clogs.ops.records import MISSIONS, POLICY, PROPOSALS, Row, publish, record_clog, state_of
from clogs.ops.validation import risk_of
from ocean import Done, Ok, Outcome, Refuse, Tick

DAY_MS = 86_400_000
UNLIMITED = 2**53
"""The limit without a cap. It is counted too, so that a cap set at noon includes the morning."""

proposals = record_clog(PROPOSALS)


@proposals.method
async def create(tick: Tick, payload: Row) -> Row:
    """Create a proposal, the only way to do so: dedupe, caps and the decision are one commit."""
    key, source, template = payload["dedupe_key"], payload["source"], payload["template"]
    if key is not None:
        holder = (await tick.read(keys=[key])).by_key[key]
        if holder is not None:
            first = holder.value
            if first is not None and (first["source"], first["template"]) != (source, template):
                await tick.emit("proposal.collided", {"dedupe_key": key, "proposal_id": holder.run_id})
            return {"proposal_id": holder.run_id, "is_new": False}
    policies = await tick.call(POLICY, "values")
    reason = None
    try:
        await tick.call(PROPOSALS, "count_against_caps", source)
    except CapReached as capped:
        reason = str(capped)
    is_approved = reason is None and is_auto_approvable(auto_approve_of(policies), template)
    status = "rejected" if reason else "auto_approved" if is_approved else "pending"
    row = {
        "dedupe_key": key,
        "source": source,
        "status": status,
        "template": template,
        "reason": reason,
        "policy_snapshot": snapshot(policies),
        "approved_at": tick.now if is_approved else None,
        "created_at": tick.now,
        "votes": {},
    }
    attributes = {"state": status, "source": source, **({"dedupe_key": key} if key is not None else {})}
    made = await tick.create_run(clog_id=PROPOSALS, input=row, dedupe_key=key, attributes=attributes)
    return {"proposal_id": made, "is_new": True, "status": status, "reason": reason}


@proposals.method
async def gate(tick: Tick, source: str | None) -> str | None:
    """Return why a proposal would be rejected now, or None. Nothing is counted."""
    return await _cap_reached(tick, caps_of(await tick.call(POLICY, "values")), source, 0)


@proposals.method
async def count_against_caps(tick: Tick, source: str) -> None:
    """Count a proposal against its caps. It is a nested call, so a refusal undoes what was counted of the other cap."""
    reason = await _cap_reached(tick, caps_of(await tick.call(POLICY, "values")), source, 1)
    if reason is not None:
        raise CapReached(reason)


class CapReached(Exception):
    """A cap allows no more proposals today."""


async def _cap_reached(tick: Tick, caps: ProposalCaps, source: str | None, n: int) -> str | None:
    name = f"ops:{tick.session_id}:proposals"
    requested = [(name, caps.daily_limit, CAP_REACHED)]
    if source is not None:
        requested.append((f"{name}:{source}", caps.limit_of(source), f"{CAP_REACHED} for source {source}"))
    for key, limit, reason in requested:
        most = UNLIMITED if limit is None else limit
        if not most or not await tick.take(key, n, most, DAY_MS, refill="at_once"):
            return reason
    return None


@proposals.on_advance
async def advance(tick: Tick) -> Outcome:
    """Store the row; create the mission or request votes. Later decisions are calls, which change the row."""
    row, is_stored = await state_of(tick)
    if not is_stored:
        await tick.write(run=row)
        if row["status"] == "auto_approved":
            await _make_mission(tick, row)
        voting = voting_of(row["policy_snapshot"])
        if row["status"] == "pending" and voting.enabled:
            risk = risk_of(row["template"])
            requested = {"proposal_id": tick.run_id, "risk_level": risk, "approvals_needed": voting.needed(risk)}
            await publish(tick, "proposal:vote_requested", requested)
    return Ok() if row["status"] == "pending" else Done({"status": row["status"]})


@proposals.method
async def approve(tick: Tick, payload: Row) -> str:
    """Approve the proposal and create its mission in one commit, so neither happens twice."""
    row = await _pending_row(tick)
    await _decide(tick, row, "approved", payload["reason"])
    return mission_id_of(tick.run_id)


@proposals.method
async def reject(tick: Tick, payload: Row) -> None:
    row = await _pending_row(tick)
    await _decide(tick, row, "rejected", payload["reason"] or "Rejected")


@proposals.method
async def vote(tick: Tick, payload: Row) -> Row:
    """Take one vote per role. A reject is a veto; enough approvals for the risk create the mission."""
    rows = await tick.read(run=True)
    role, choice = _voting_role(tick, payload["role"]), payload["vote"]
    earlier = ((rows.run or {}).get("votes") or {}).get(role)
    if earlier is not None and earlier["vote"] == choice:
        return _tally(rows.run)
    row = await _pending_row(tick)
    voting = voting_of(row["policy_snapshot"])
    if not voting.enabled:
        raise not_now(f"Proposal {tick.run_id} takes no votes: voting_policy was not enabled when it was created")
    if earlier is not None:
        raise not_now(f"role {role} has already voted {earlier['vote']} on this proposal; a role has one vote")
    cast = {"vote": choice, "actor": tick.caller.actor, "at": tick.now}
    row = {**row, "votes": {**row["votes"], role: cast}}
    await tick.emit("proposal.voted", {"role": role, "vote": choice})
    approvals = sum(1 for each in row["votes"].values() if each["vote"] == "approve")
    if choice == "reject":
        row = await _decide(tick, row, "rejected", f"Vetoed by {role}")
    elif approvals >= voting.needed(risk_of(row["template"])):
        row = await _decide(tick, row, "approved", None)
    else:
        await tick.write(run=row)
    return _tally(row)


def _voting_role(tick: Tick, requested: str | None) -> str:
    """Return the voting role: one of the key's roles, which the request can only select."""
    roles = tick.caller.roles
    if not roles:
        raise Refuse("the key must have a role to vote; use one that has", code="no_role", http_status=403)
    if requested is None and len(roles) > 1:
        raise wrong(f"role must be one of the key's roles: {', '.join(roles)}")
    if requested is not None and requested not in roles:
        raise Refuse(
            f"the key does not have the role {requested}; it has {', '.join(roles)}", code="no_role", http_status=403
        )
    return requested or roles[0]


def _tally(row: Row) -> Row:
    risk = risk_of(row["template"])
    return {
        "status": row["status"],
        "votes": {role: each["vote"] for role, each in row["votes"].items()},
        "approvals_needed": voting_of(row["policy_snapshot"]).needed(risk),
    }


async def _pending_row(tick: Tick) -> Row:
    rows = await tick.read(run=True)
    if not rows.has_run:
        raise not_now(f"Proposal {tick.run_id} is being created; retry")
    row: Row = rows.run
    if row["status"] != "pending":
        raise not_now(f"Proposal {tick.run_id} is {row['status']}; only a pending one can be decided")
    return row


async def _decide(tick: Tick, row: Row, status: str, reason: str | None) -> Row:
    is_approved = status == "approved"
    row = {**row, "status": status, "reason": reason, "approved_at": tick.now if is_approved else None}
    await tick.write(run=row)
    await tick.set_attributes(state=status)
    await tick.emit(f"proposal.{status}", {"reason": reason})
    if is_approved:
        await _make_mission(tick, row)
    await tick.signal(tick.run_id)
    return row


def mission_id_of(proposal_id: str) -> str:
    """Return the id of the proposal's mission, which is derived from the proposal's id."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"ops:{proposal_id}:mission"))


async def _make_mission(tick: Tick, row: Row) -> None:
    mission: dict[str, Any] = {
        "proposal_id": tick.run_id,
        "status": "approved",
        "policy_snapshot": row["policy_snapshot"],
        "started_at": tick.now,
        "completed_at": None,
        "created_at": tick.now,
        "updated_at": tick.now,
        "plan": row["template"]["steps"],
    }
    attributes = {"state": "approved", "proposal_id": tick.run_id}
    await tick.create_run(clog_id=MISSIONS, run_id=mission_id_of(tick.run_id), input=mission, attributes=attributes)
