"""Claiming: one bounded probe per lane, the lock, and the tick's inputs fixed."""

import sqlite3
from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from ocean.kernel.store.claims import ClaimAsk, NotClaimable
from ocean.state.claim_order import pick
from ocean.state.eligibility import Surroundings, holds
from ocean.state.records import Agenda, Claim, Run, RunStatus
from ocean.state.transitions import due_at
from ocean.stores.shared.claim_plan import (
    COUNT_CAP,
    Stock,
    agenda_of,
    claim_of,
    first_call,
    further_call,
    once_claimed,
    surroundings_of,
)
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.inbox import due_inputs, fix_inputs, fixed_inputs
from ocean.stores.sqlite.keys import full_key, park_if_full
from ocean.stores.sqlite.overdue import do_what_is_owed
from ocean.stores.sqlite.run_info import Wide

MOST_OWED = 100
MOST_LOOKED_AT = 1_000
"""How many due runs one claim looks at when it has to park them: each is parked once, then gone from the index."""
PRIORITIES = range(10)


def has_work(u: Unit, ask: ClaimAsk) -> bool:
    """Whether a claim would find anything: reads only, so that an idle poke takes no write lock."""
    if ask.run_id is not None:
        run = u.find(ask.run_id)
        return run is not None and not holds(run, surroundings(u, run, ask.clogs), u.now)
    return _is_owed(u) or bool(_candidates(u, replace(ask, limit=1)))


def _is_owed(u: Unit) -> bool:
    """Of what is held back, nothing is: it was looked at just now."""
    [owed] = u.stored("next_owed")
    return owed["at"] is not None and owed["at"] <= u.now


def claim_due(u: Unit, ask: ClaimAsk) -> list[Claim]:
    if ask.run_id is not None:
        named = u.find(ask.run_id)
        if named is not None:
            do_what_is_owed(u, named)
        claim = _claim(u, u.run(ask.run_id), ask, Wide(u, [ask.run_id])) if named is not None else None
        return [] if claim is None else [claim]
    if _is_owed(u):
        _do_all(u, u.all("overdue", now=u.now, limit=MOST_OWED))
        _do_all(u, u.all("lost_on_last_call", now=u.now, limit=MOST_OWED))
        _do_all(u, u.all("lapsed_leases", now=u.now, limit=MOST_OWED))
    claims: list[Claim] = []
    for _ in range(0, MOST_LOOKED_AT, ask.limit or 1):
        left = ask.limit - len(claims)
        chosen = pick(_candidates(u, replace(ask, limit=left)), left, ask.slot + len(claims))
        wide = Wide(u, [run.run_id for run in chosen])
        # As it is now: an end made for one of them may have ended its children among the others.
        claims += filter(None, [_claim(u, u.run(run.run_id), ask, wide) for run in chosen])
        u.flush()
        if len(chosen) < left or not any(u.run(run.run_id).parked_on for run in chosen):
            break
    return claims


def claim_woken(u: Unit, ask: ClaimAsk) -> list[Claim]:
    """Of what this very transaction has made due. Whoever orders this has found nothing else that is."""
    due = [run for run in u.held_runs() if run.clog_id in ask.clogs and _is_due(u, run)]
    chosen = pick(due, ask.limit, ask.slot)
    wide = Wide(u, [run.run_id for run in chosen])
    return [claim for claim in (_claim(u, u.run(run.run_id), ask, wide) for run in chosen) if claim is not None]


def _do_all(u: Unit, owed: list[sqlite3.Row]) -> None:
    for row in owed:
        do_what_is_owed(u, u.run(row["run_id"]))
    u.flush()


def _candidates(u: Unit, ask: ClaimAsk) -> list[Run]:
    """The due runs of the asked clogs: of each lane at most `limit` of those stored, and all that are held back."""
    paused = {row["clog_id"] for row in u.all("list_clogs") if row["paused"]}
    held = {run.run_id: run for run in u.held_runs()}
    found: list[Run] = []

    def look(name: str, **where: Any) -> None:
        """For those that are stored as they are."""
        rows = u.stored(name, **where, now=u.now, limit=ask.limit + len(held))
        found.extend(u.loaded(islice((row for row in rows if row["run_id"] not in held), ask.limit)))

    for queue in ask.queues:
        for clog_id in ask.clogs.keys() - paused:
            for priority in PRIORITIES:
                look("queue_due", clog_id=clog_id, queue=queue, priority=priority)
    for lane in () if ask.queues else list(u.stored("lanes")):
        if lane["clog_id"] in ask.clogs and lane["clog_id"] not in paused and lane["first_due_at"] <= u.now:
            look("lane_due", clog_id=lane["clog_id"], priority=lane["priority"])
    for clog_id in () if ask.queues else paused & ask.clogs.keys():
        look("endings_due", clog_id=clog_id)
    return found + [run for run in held.values() if _is_asked(run, ask, paused) and _is_due(u, run)]


def _is_due(u: Unit, run: Run) -> bool:
    at = due_at(run)
    return at is not None and at <= u.now


def _is_asked(run: Run, ask: ClaimAsk, paused: set[str]) -> bool:
    if run.clog_id not in ask.clogs or (run.clog_id in paused and (ask.queues or run.ending is None)):
        return False
    return not ask.queues or run.queue in ask.queues


def surroundings(u: Unit, run: Run, clog_ids: Collection[str]) -> Surroundings:
    return surroundings_of(run, u.clog(run.clog_id), full_key(u, run), clog_ids)


class Plan(NamedTuple):
    """A claim as it would be made now: the run before and after it, and the event that woke the tick."""

    claim: Claim
    before: Run
    following: Run
    caused_by: str | None


def plan_claim(u: Unit, run: Run, ask: ClaimAsk, wide: Wide) -> Plan | NotClaimable:
    """Everything that a claim of this run decides. It only reads: what a plan says, the claim then writes."""
    following = once_claimed(run, surroundings(u, run, ask.clogs), ask, u.now)
    if isinstance(following, NotClaimable):
        return following
    if run.tick_open:
        tick = u.one("get_tick", run_id=run.run_id, tick=run.tick)
        assert tick is not None
        call = further_call(tick, fixed_inputs(u, run))
    else:
        call = first_call(following, due_inputs(u, following, ask.clogs[run.clog_id].takes_all_inputs))
    return Plan(claim_of(following, wide.info(following), call, ask, u.now), run, following, call.caused_by)


def _claim(u: Unit, run: Run, ask: ClaimAsk, wide: Wide) -> Claim | None:
    plan = plan_claim(u, run, ask, wide)
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
    facts: dict[str, Any] = {
        "run_id": run.run_id,
        "tick": run.tick,
        "epoch": run.lock_epoch,
        "instance_id": ask.instance_id,
        "version": ask.clogs[run.clog_id].version,
        "now": u.now,
    }
    if not before.tick_open:
        fix_inputs(u, run, claim.inputs)
        facts |= {"reason": claim.reason, "caused_by": plan.caused_by}
        u.later("insert_tick", run.run_id, **facts)
        row = {**facts, "outcome": None, "conflicts": 0, "first_claimed_at": u.now}
        u.begin_tick(run, row, [each.number for each in claim.inputs])
        return
    # Its turns are void. Whoever commits looks for some only if this call has met a conflict.
    u.do("release_turns", run_id=run.run_id)
    u.do("reclaim_tick", **facts, call=claim.call)
    was_given_back = before.status is RunStatus.PENDING and before.wake_at is None
    because = "crash" if before.status is RunStatus.ACTIVE else "give_back" if was_given_back else "retry"
    payload = {"because": because, "attempt": run.attempt, "previous": before.locked_by}
    u.event(run.run_id, "tick.restarted", payload, tick=run.tick, call=claim.call, caused_by=plan.caused_by)


def preview_claim(u: Unit, ask: ClaimAsk) -> Claim | NotClaimable:
    run = u.run(ask.run_id or "")
    plan = plan_claim(u, run, ask, Wide(u, [run.run_id]))
    return plan.claim if isinstance(plan, Plan) else plan


def agenda(u: Unit, clog_ids: frozenset[str]) -> Agenda:
    """What is due, in a number of rows that does not grow with the runs that sleep or have ended."""
    paused = {row["clog_id"] for row in u.all("list_clogs") if row["paused"]}
    lanes, last_ticks = [], []
    for lane in u.all("lanes"):
        is_ours = lane["clog_id"] in clog_ids and lane["clog_id"] not in paused
        where = {"clog_id": lane["clog_id"], "priority": lane["priority"]}
        is_due = lane["first_due_at"] <= u.now
        row = u.one("lane_due_count", **where, now=u.now, limit=COUNT_CAP) if is_due else None
        lanes.append(Stock(is_ours, lane["first_due_at"], row["n"] if row else 0))
    for clog_id in paused & clog_ids:
        row = u.one("first_ending", clog_id=clog_id)
        due = len(u.all("endings_due", clog_id=clog_id, now=u.now, limit=COUNT_CAP))
        last_ticks.append(Stock(True, row["due_at"] if row else None, due))
    owed = u.one("next_owed")
    return agenda_of(lanes, last_ticks, owed["at"] if owed else None, u.now)
