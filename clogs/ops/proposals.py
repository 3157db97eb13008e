"""Proposals: gated, capped, approved by policy, by a human or by vote, and at most one mission each, ever."""

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
"""Counted against when there is no cap, so that one that is set at noon has counted the morning."""

proposals = record_clog(PROPOSALS)


@proposals.method
async def create(tick: Tick, payload: Row) -> Row:
    """The single entry: dedupe, gate, caps and the decision, in one commit."""
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
        await tick.call(PROPOSALS, "take_its_place", source)
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
    """Why a proposal would be rejected now; it takes nothing."""
    return await _refused(tick, caps_of(await tick.call(POLICY, "values")), source, 0)


@proposals.method
async def take_its_place(tick: Tick, source: str) -> None:
    """A call of its own: if one cap refuses, what was taken of the other is not taken."""
    reason = await _refused(tick, caps_of(await tick.call(POLICY, "values")), source, 1)
    if reason is not None:
        raise CapReached(reason)


class CapReached(Exception):
    """There is no room for another proposal today."""


async def _refused(tick: Tick, caps: ProposalCaps, source: str | None, n: int) -> str | None:
    name = f"ops:{tick.session_id}:proposals"
    asked = [(name, caps.daily_limit, CAP_REACHED)]
    if source is not None:
        asked.append((f"{name}:{source}", caps.limit_of(source), f"{CAP_REACHED} for source {source}"))
    for key, limit, reason in asked:
        most = UNLIMITED if limit is None else limit
        if not most or not await tick.take(key, n, most, DAY_MS, refill="at_once"):
            return reason
    return None


@proposals.on_advance
async def advance(tick: Tick) -> Outcome:
    """Store the row and do what follows from it. Decisions are calls: they have changed the row already."""
    row, is_stored = await state_of(tick)
    if not is_stored:
        await tick.write(run=row)
        if row["status"] == "auto_approved":
            await _make_mission(tick, row)
        voting = voting_of(row["policy_snapshot"])
        if row["status"] == "pending" and voting.enabled:
            risk = risk_of(row["template"])
            asked = {"proposal_id": tick.run_id, "risk_level": risk, "approvals_needed": voting.needed(risk)}
            await publish(tick, "proposal:vote_requested", asked)
    return Ok() if row["status"] == "pending" else Done({"status": row["status"]})


@proposals.method
async def approve(tick: Tick, payload: Row) -> str:
    """A human's yes. The decision and the mission are one commit, so there is no second one of either."""
    row = await _pending(tick)
    await _decided(tick, row, "approved", payload["reason"])
    return mission_id_of(tick.run_id)


@proposals.method
async def reject(tick: Tick, payload: Row) -> None:
    row = await _pending(tick)
    await _decided(tick, row, "rejected", payload["reason"] or "Rejected")


@proposals.method
async def vote(tick: Tick, payload: Row) -> Row:
    """One vote a role. Any reject is a veto; enough approvals for the risk make the mission."""
    rows = await tick.read(run=True)
    role, choice = _role(tick, payload["role"]), payload["vote"]
    earlier = ((rows.run or {}).get("votes") or {}).get(role)
    if earlier is not None and earlier["vote"] == choice:
        return _tally(rows.run)
    row = await _pending(tick)
    voting = voting_of(row["policy_snapshot"])
    if not voting.enabled:
        raise not_now(f"Proposal {tick.run_id} is not voted on: voting_policy was not enabled when it was made")
    if earlier is not None:
        raise not_now(f"role {role} has voted {earlier['vote']} on this proposal; a role has one vote")
    cast = {"vote": choice, "actor": tick.caller.actor, "at": tick.now}
    row = {**row, "votes": {**row["votes"], role: cast}}
    await tick.emit("proposal.voted", {"role": role, "vote": choice})
    approvals = sum(1 for each in row["votes"].values() if each["vote"] == "approve")
    if choice == "reject":
        row = await _decided(tick, row, "rejected", f"Vetoed by {role}")
    elif approvals >= voting.needed(risk_of(row["template"])):
        row = await _decided(tick, row, "approved", None)
    else:
        await tick.write(run=row)
    return _tally(row)


def _role(tick: Tick, asked: str | None) -> str:
    """The role is the key's, never the request's: it can only choose among those that the key has."""
    roles = tick.caller.roles
    if not roles:
        raise Refuse("a vote is a role's: use a key that has one", code="no_role", http_status=403)
    if asked is None and len(roles) > 1:
        raise wrong(f"your key has the roles {', '.join(roles)}; say as which one you vote")
    if asked is not None and asked not in roles:
        raise Refuse(f"your key does not have the role {asked}", code="no_role", http_status=403)
    return asked or roles[0]


def _tally(row: Row) -> Row:
    risk = risk_of(row["template"])
    return {
        "status": row["status"],
        "votes": {role: each["vote"] for role, each in row["votes"].items()},
        "approvals_needed": voting_of(row["policy_snapshot"]).needed(risk),
    }


async def _pending(tick: Tick) -> Row:
    rows = await tick.read(run=True)
    if not rows.has_run:
        raise not_now(f"Proposal {tick.run_id} is being created; ask again")
    row: Row = rows.run
    if row["status"] != "pending":
        raise not_now(f"Proposal {tick.run_id} is {row['status']}; only a pending one is decided")
    return row


async def _decided(tick: Tick, row: Row, status: str, reason: str | None) -> Row:
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
    """One proposal, one mission: its id follows from the proposal's."""
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
