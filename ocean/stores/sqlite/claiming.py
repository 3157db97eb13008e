"""Claiming: one bounded probe per lane, the lock, and the tick's inputs fixed."""

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, replace

from ocean.kernel.eligibility import Surroundings, holds, is_lapsed_lease, kernel_end
from ocean.kernel.lanes import pick
from ocean.kernel.records import WAKE, Agenda, Claim, Input, Lock, Run, RunStatus
from ocean.kernel.store import ClaimableClog, ClaimAsk, NotClaimable
from ocean.kernel.transitions import EndNow, claimed
from ocean.stores.sqlite.inbox import due_inputs, fix_inputs, fixed_inputs
from ocean.stores.sqlite.info import info
from ocean.stores.sqlite.keys import full_key, park_if_full
from ocean.stores.sqlite.owing import do_what_is_owed
from ocean.stores.sqlite.unit import Unit

MOST_OWED = 100
MOST_LOOKED_AT = 1_000
"""How many due runs one claim looks at when it has to park them: each is parked once, then gone from the index."""
COUNT_CAP = 1_000
PRIORITIES = range(10)

MOST_ROUNDS = 50
"""Of a claim: one may only make ends that are owed, a bounded batch of them, and then there is another."""


def has_work(u: Unit, ask: ClaimAsk) -> bool:
    """Whether a claim would find anything: reads only, so that an idle poke takes no write lock."""
    if ask.run_id is not None:
        run = u.find(ask.run_id)
        return run is not None and not holds(run, surroundings(u, run, ask.clogs), u.now)
    owed = u.one("next_owed")
    if owed is not None and owed["at"] is not None and owed["at"] <= u.now:
        return True
    return bool(_candidates(u, replace(ask, limit=1)))


def claim_due(u: Unit, ask: ClaimAsk) -> list[Claim]:
    if ask.run_id is not None:
        named = u.find(ask.run_id)
        if named is not None:
            do_what_is_owed(u, named)
        claim = _claim(u, u.run(ask.run_id), ask) if named is not None else None
        return [] if claim is None else [claim]
    _do_all(u, u.all("overdue", now=u.now, limit=MOST_OWED))
    _do_all(u, u.all("lost_on_last_call", now=u.now, limit=MOST_OWED))
    _do_all(u, u.all("lapsed_leases", now=u.now, limit=MOST_OWED))
    claims: list[Claim] = []
    for _ in range(0, MOST_LOOKED_AT, ask.limit or 1):
        left = ask.limit - len(claims)
        chosen = pick(_candidates(u, replace(ask, limit=left)), left, ask.slot + len(claims))
        # As it is now: an end made for one of them may have ended its children among the others.
        claims += filter(None, [_claim(u, u.run(run.run_id), ask) for run in chosen])
        u.flush()
        if len(chosen) < left or not any(u.run(run.run_id).parked_on for run in chosen):
            break
    return claims


def _do_all(u: Unit, owed: list[sqlite3.Row]) -> None:
    for row in owed:
        do_what_is_owed(u, u.run(row["run_id"]))
    u.flush()


def _candidates(u: Unit, ask: ClaimAsk) -> list[Run]:
    """The due runs of the asked clogs, at most `limit` of each lane."""
    paused = {row["clog_id"] for row in u.all("list_clogs") if row["paused"]}
    found: list[Run] = []
    for queue in ask.queues:
        for clog_id in ask.clogs.keys() - paused:
            for priority in PRIORITIES:
                where = {"clog_id": clog_id, "queue": queue, "priority": priority}
                found += u.loaded(u.all("queue_due", **where, now=u.now, limit=ask.limit))
    if ask.queues:
        return found
    for lane in u.all("lanes"):
        if lane["clog_id"] in ask.clogs and lane["clog_id"] not in paused and lane["first_due_at"] <= u.now:
            where = {"clog_id": lane["clog_id"], "priority": lane["priority"]}
            found += u.loaded(u.all("lane_due", **where, now=u.now, limit=ask.limit))
    for clog_id in paused & ask.clogs.keys():
        found += u.loaded(u.all("endings_due", clog_id=clog_id, now=u.now, limit=ask.limit))
    return found


def surroundings(u: Unit, run: Run, clog_ids: Collection[str]) -> Surroundings:
    """What else decides whether the run can be claimed by somebody who has these clogs."""
    record = u.clog(run.clog_id)
    return Surroundings(
        is_here=run.clog_id in clog_ids,
        is_clog_paused=record is not None and record.paused,
        is_external=record is not None and record.external,
        full_key=full_key(u, run),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A claim as it would be made now: the run before and after it, and the event that woke the tick."""

    claim: Claim
    before: Run
    following: Run
    caused_by: str | None


def plan_claim(u: Unit, run: Run, ask: ClaimAsk) -> Plan | NotClaimable:
    """Everything that a claim of this run decides. It only reads: what a plan says, the claim then writes."""
    if owed := kernel_end(run, u.now):
        return NotClaimable(end=owed)
    if found := holds(run, surroundings(u, run, ask.clogs), u.now):
        return NotClaimable(holds=found)
    if is_lapsed_lease(run, u.now):
        return NotClaimable()
    clog = ask.clogs[run.clog_id]
    following = claimed(run, ask.instance_id, clog.lock_ms, u.now, is_lease=ask.is_lease)
    if isinstance(following, EndNow):
        return NotClaimable(end=following.reason)
    call, reason, inputs, caused_by = _call_again(u, run) if run.tick_open else _begin(u, following, clog)
    claim = Claim(
        run=info(u, following),
        lock=Lock(run.run_id, following.lock_epoch, clog.lock_ms),
        tick=following.tick,
        call=call,
        reason=reason,
        inputs=inputs,
        claimed_at=u.now,
        lock_expires_at=u.now + clog.lock_ms,
        life=run.life,
    )
    return Plan(claim, run, following, caused_by)


def _begin(u: Unit, run: Run, clog: ClaimableClog) -> tuple[int, str, tuple[Input, ...], str | None]:
    """A new tick: its number, reason and inputs, for every call of it."""
    inputs = () if run.ending else due_inputs(u, run, clog.takes_all_inputs)
    reason = str(run.ending) if run.ending else str(inputs[0].kind) if inputs else WAKE
    return 1, reason, inputs, inputs[0].caused_by if inputs else None


def _call_again(u: Unit, run: Run) -> tuple[int, str, tuple[Input, ...], str | None]:
    """The same tick once more, after a crash, a failed attempt or a give-back."""
    tick = u.one("get_tick", run_id=run.run_id, tick=run.tick)
    assert tick is not None
    return tick["calls"] + 1, tick["reason"], fixed_inputs(u, run), tick["caused_by"]


def _claim(u: Unit, run: Run, ask: ClaimAsk) -> Claim | None:
    plan = plan_claim(u, run, ask)
    if isinstance(plan, NotClaimable):
        if not plan.holds:
            do_what_is_owed(u, run)
        elif [hold.code for hold in plan.holds] == ["key_full"] and run.parked_on is None:
            park_if_full(u, run)
            u.flush()
        return None
    u.save(plan.following)
    _write_tick(u, plan, ask)
    if run.key_count:
        # The slots are taken at once: the next candidate of this claim must see it.
        u.flush()
    return plan.claim


def _write_tick(u: Unit, plan: Plan, ask: ClaimAsk) -> None:
    claim, before, run = plan.claim, plan.before, plan.following
    facts = {
        "run_id": run.run_id,
        "tick": run.tick,
        "epoch": run.lock_epoch,
        "instance_id": ask.instance_id,
        "version": ask.clogs[run.clog_id].version,
        "now": u.now,
    }
    if not before.tick_open:
        fix_inputs(u, run, claim.inputs)
        u.do("insert_tick", **facts, reason=claim.reason, caused_by=plan.caused_by)
        return
    u.do("reclaim_tick", **facts, call=claim.call)
    was_given_back = before.status is RunStatus.PENDING and before.wake_at is None
    because = "crash" if before.status is RunStatus.ACTIVE else "give_back" if was_given_back else "retry"
    payload = {"because": because, "attempt": run.attempt, "previous": before.locked_by}
    u.event(run.run_id, "tick.restarted", payload, tick=run.tick, call=claim.call, caused_by=plan.caused_by)


def preview_claim(u: Unit, ask: ClaimAsk) -> Claim | NotClaimable:
    plan = plan_claim(u, u.run(ask.run_id or ""), ask)
    return plan.claim if isinstance(plan, Plan) else plan


def agenda(u: Unit, clog_ids: frozenset[str]) -> Agenda:
    """What is due, in a number of rows that does not grow with the runs that sleep or have ended."""
    paused = {row["clog_id"] for row in u.all("list_clogs") if row["paused"]}
    due = unclaimable = 0
    times: list[int] = []
    for lane in u.all("lanes"):
        is_ours = lane["clog_id"] in clog_ids and lane["clog_id"] not in paused
        if is_ours:
            times.append(lane["first_due_at"])
        if lane["first_due_at"] <= u.now:
            where = {"clog_id": lane["clog_id"], "priority": lane["priority"]}
            row = u.one("lane_due_count", **where, now=u.now, limit=COUNT_CAP)
            count = row["n"] if row else 0
            due, unclaimable = (due + count, unclaimable) if is_ours else (due, unclaimable + count)
    for clog_id in paused & clog_ids:
        row = u.one("first_ending", clog_id=clog_id)
        times += [row["due_at"]] if row and row["due_at"] is not None else []
        last_ticks = len(u.all("endings_due", clog_id=clog_id, now=u.now, limit=COUNT_CAP))
        due, unclaimable = due + last_ticks, unclaimable - last_ticks
    owed = u.one("next_owed")
    times += [owed["at"]] if owed and owed["at"] is not None else []
    first = min(times, default=None)
    age = max(0, u.now - first) if first is not None else 0
    return Agenda(min(due, COUNT_CAP), first, age, min(unclaimable, COUNT_CAP))
