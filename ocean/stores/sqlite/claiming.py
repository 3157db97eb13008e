"""Claiming due runs: one bounded search per lane, then the lock and the inputs of the tick."""

import sqlite3
from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from ocean.kernel.store.claims import ClaimAsk, NotClaimable
from ocean.state.eligibility import Surroundings, holds, pick
from ocean.state.records import Agenda, Claim, Run, RunStatus
from ocean.state.suspects import counts_as_attempt
from ocean.state.transitions import attempts, due_at
from ocean.stores.shared.claim_plan import (
    COUNT_CAP,
    DueCount,
    agenda_of,
    claim_of,
    first_call,
    repeated_call,
    run_after_claim,
    surroundings_of,
)
from ocean.stores.sqlite.crashes import as_if_noted, with_crash_noted
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.inbox import due_inputs, fix_inputs, fixed_inputs
from ocean.stores.sqlite.keys import full_key, park_if_full
from ocean.stores.sqlite.overdue import settle_overdue
from ocean.stores.sqlite.run_info import RunDetails

MOST_OVERDUE = 100
MOST_EXAMINED = 1_000
"""How many due runs one claim examines if it has to park them. A parked run leaves the due index."""
PRIORITIES = range(10)


def has_work(u: Unit, ask: ClaimAsk) -> bool:
    """Whether a claim would find anything. It only reads, so that an idle poke takes no write lock."""
    if ask.run_id is not None:
        run = u.find(ask.run_id)
        return run is not None and not holds(run, surroundings(u, run, ask.clogs), u.now)
    return _has_overdue(u) or bool(_candidates(u, replace(ask, limit=1)))


def _has_overdue(u: Unit) -> bool:
    """Whether a stored run is overdue. Buffered runs were changed just now and are not."""
    [first] = u.stored("next_owed")
    return first["at"] is not None and first["at"] <= u.now


def claim_due(u: Unit, ask: ClaimAsk) -> list[Claim]:
    if ask.run_id is not None:
        named = u.find(ask.run_id)
        if named is not None:
            settle_overdue(u, named)
        claim = _claim(u, u.run(ask.run_id), ask, RunDetails(u, [ask.run_id])) if named is not None else None
        return [] if claim is None else [claim]
    if _has_overdue(u):
        _settle_all(u, u.all("overdue", now=u.now, limit=MOST_OVERDUE))
        _settle_all(u, u.all("lost_on_last_call", now=u.now, limit=MOST_OVERDUE))
        _settle_all(u, u.all("lapsed_leases", now=u.now, limit=MOST_OVERDUE))
    claims: list[Claim] = []
    for _ in range(0, MOST_EXAMINED, ask.limit or 1):
        left = ask.limit - len(claims)
        chosen = pick(_candidates(u, replace(ask, limit=left)), left, ask.slot + len(claims))
        details = RunDetails(u, [run.run_id for run in chosen])
        # Read each run again: the end of one may have ended its children among the others.
        claims += filter(None, [_claim(u, u.run(run.run_id), ask, details) for run in chosen])
        u.flush()
        if len(chosen) < left or not any(u.run(run.run_id).parked_on for run in chosen):
            break
    return claims


def claim_woken(u: Unit, ask: ClaimAsk) -> list[Claim]:
    """Claim runs that this transaction has made due. The caller has found no other due run before."""
    due = [run for run in u.buffered_runs() if run.clog_id in ask.clogs and _is_due(u, run)]
    chosen = pick(due, ask.limit, ask.slot)
    details = RunDetails(u, [run.run_id for run in chosen])
    return [claim for claim in (_claim(u, u.run(run.run_id), ask, details) for run in chosen) if claim is not None]


def _settle_all(u: Unit, overdue: list[sqlite3.Row]) -> None:
    for row in overdue:
        settle_overdue(u, u.run(row["run_id"]))
    u.flush()


def _candidates(u: Unit, ask: ClaimAsk) -> list[Run]:
    """The due runs of the requested clogs: at most `limit` stored ones of each lane, and all that are buffered."""
    paused = {row["clog_id"] for row in u.all("list_clogs") if row["paused"]}
    buffered = {run.run_id: run for run in u.buffered_runs()}
    found: list[Run] = []

    def search(name: str, **where: Any) -> None:
        """Add stored runs that are not buffered."""
        rows = u.stored(name, **where, now=u.now, limit=ask.limit + len(buffered))
        found.extend(u.load(islice((row for row in rows if row["run_id"] not in buffered), ask.limit)))

    for queue in ask.queues:
        for clog_id in ask.clogs.keys() - paused:
            for priority in PRIORITIES:
                search("queue_due", clog_id=clog_id, queue=queue, priority=priority)
    for lane in () if ask.queues else list(u.stored("lanes")):
        if lane["clog_id"] in ask.clogs and lane["clog_id"] not in paused and lane["first_due_at"] <= u.now:
            search("lane_due", clog_id=lane["clog_id"], priority=lane["priority"])
    for clog_id in () if ask.queues else paused & ask.clogs.keys():
        search("endings_due", clog_id=clog_id)
    return found + [run for run in buffered.values() if _is_requested(run, ask, paused) and _is_due(u, run)]


def _is_due(u: Unit, run: Run) -> bool:
    at = due_at(run)
    return at is not None and at <= u.now


def _is_requested(run: Run, ask: ClaimAsk, paused: set[str]) -> bool:
    if run.clog_id not in ask.clogs or (run.clog_id in paused and (ask.queues or run.ending is None)):
        return False
    return not ask.queues or run.queue in ask.queues


def surroundings(u: Unit, run: Run, clog_ids: Collection[str]) -> Surroundings:
    return surroundings_of(run, u.clog(run.clog_id), full_key(u, run), clog_ids)


class ClaimPlan(NamedTuple):
    """A claim as it would be made now: the run before and after it, and the event that caused the tick."""

    claim: Claim
    before: Run
    following: Run
    caused_by: str | None


def plan_claim(u: Unit, run: Run, ask: ClaimAsk, details: RunDetails) -> ClaimPlan | NotClaimable:
    """Decide everything about a claim of this run. It only reads; the claim then writes the plan."""
    following = run_after_claim(run, surroundings(u, run, ask.clogs), ask, u.now)
    if isinstance(following, NotClaimable):
        return following
    if following.tick == run.tick:
        tick = u.one("get_tick", run_id=run.run_id, tick=run.tick)
        assert tick is not None
        call = repeated_call(tick, fixed_inputs(u, run))
    else:
        call = first_call(following, due_inputs(u, following, ask.clogs[run.clog_id].takes_all_inputs))
    return ClaimPlan(claim_of(following, details.info(following), call, ask, u.now), run, following, call.caused_by)


def _claim(u: Unit, run: Run, ask: ClaimAsk, details: RunDetails) -> Claim | None:
    run = with_crash_noted(u, run)
    plan = plan_claim(u, run, ask, details)
    if isinstance(plan, NotClaimable):
        if not plan.holds:
            settle_overdue(u, run)
        elif [hold.code for hold in plan.holds] == ["key_full"] and run.parked_on is None:
            park_if_full(u, run)
            u.flush()
        return None
    u.save(plan.following)
    _write_tick(u, plan, ask)
    if run.key_count:
        # Take the slots now: the next candidate of this claim must find them taken.
        u.flush()
    return plan.claim


def _write_tick(u: Unit, plan: ClaimPlan, ask: ClaimAsk) -> None:
    claim, before, run = plan.claim, plan.before, plan.following
    facts: dict[str, Any] = {
        "run_id": run.run_id,
        "tick": run.tick,
        "epoch": run.lock_epoch,
        "instance_id": ask.instance_id,
        "version": ask.clogs[run.clog_id].version,
        "now": u.now,
    }
    if run.tick != before.tick:
        fix_inputs(u, run, claim.inputs)
        facts |= {"reason": claim.reason, "caused_by": plan.caused_by}
        u.later("insert_tick", run.run_id, **facts)
        row = {**facts, "outcome": None, "conflicts": 0, "first_claimed_at": u.now}
        u.begin_tick(run, row, [each.number for each in claim.inputs])
        return
    # Turns of an earlier call are void. The commit releases turns only if this call has met a conflict.
    u.do("release_turns", run_id=run.run_id)
    u.do("reclaim_tick", **facts, call=claim.call)
    was_given_back = before.status is RunStatus.PENDING and before.wake_at is None
    because = "crash" if before.status is RunStatus.ACTIVE else "give_back" if was_given_back else "retry"
    payload = {"because": because, "attempt": attempts(run), "previous": before.locked_by}
    if because == "crash" and not counts_as_attempt(before):
        payload["company"] = before.crash_company
    u.event(run.run_id, "tick.restarted", payload, tick=run.tick, call=claim.call, caused_by=plan.caused_by)


def preview_claim(u: Unit, ask: ClaimAsk) -> Claim | NotClaimable:
    run = as_if_noted(u, u.run(ask.run_id or ""))
    plan = plan_claim(u, run, ask, RunDetails(u, [run.run_id]))
    return plan.claim if isinstance(plan, ClaimPlan) else plan


def agenda(u: Unit, clog_ids: frozenset[str]) -> Agenda:
    """What is due. The number of rows read does not grow with runs that sleep or have ended."""
    paused = {row["clog_id"] for row in u.all("list_clogs") if row["paused"]}
    lanes, last_ticks = [], []
    for lane in u.all("lanes"):
        is_ours = lane["clog_id"] in clog_ids and lane["clog_id"] not in paused
        where = {"clog_id": lane["clog_id"], "priority": lane["priority"]}
        is_due = lane["first_due_at"] <= u.now
        row = u.one("lane_due_count", **where, now=u.now, limit=COUNT_CAP) if is_due else None
        lanes.append(DueCount(is_ours, lane["first_due_at"], row["n"] if row else 0))
    for clog_id in paused & clog_ids:
        row = u.one("first_ending", clog_id=clog_id)
        due = len(u.all("endings_due", clog_id=clog_id, now=u.now, limit=COUNT_CAP))
        last_ticks.append(DueCount(True, row["due_at"] if row else None, due))
    overdue = u.one("next_owed")
    return agenda_of(lanes, last_ticks, overdue["at"] if overdue else None, u.now)
