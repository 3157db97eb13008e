"""Claiming: one bounded probe per lane, the lock, and the tick's inputs fixed; and what any poke owes besides."""

import sqlite3
from collections.abc import Collection
from dataclasses import replace

from ocean.kernel.eligibility import Surroundings, holds, is_lapsed_lease, kernel_end
from ocean.kernel.lanes import pick
from ocean.kernel.outcomes import ErrorInfo
from ocean.kernel.records import WAKE, Agenda, Claim, Ending, Input, Lock, Run, RunStatus
from ocean.kernel.store import ClaimableClog, ClaimAsk
from ocean.kernel.transitions import EndNow, claimed, lease_lapsed
from ocean.stores.sqlite.ending import request_end
from ocean.stores.sqlite.inbox import fix_inputs, fixed_inputs
from ocean.stores.sqlite.info import info
from ocean.stores.sqlite.keys import full_key, park_if_full
from ocean.stores.sqlite.unit import Unit

MOST_OWED = 100
MOST_LOOKED_AT = 1_000
"""How many due runs one claim looks at when it has to park them: each is parked once, then gone from the index."""
COUNT_CAP = 1_000
PRIORITIES = range(10)


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


def do_what_is_owed(u: Unit, run: Run) -> None:
    """What any `advance` does, whatever clogs it has: ends that are due, and taking back a lease that lapsed."""
    match kernel_end(run, u.now):
        case Ending.DEADLINE:
            error = ErrorInfo("deadline_exceeded", f"the deadline {run.deadline_at} passed", None)
            request_end(u, run.run_id, Ending.DEADLINE, error)
        case Ending() as reason:
            u.save(replace(run, attempt=run.attempt + 1))
            request_end(u, run.run_id, reason, crash_error(run))
        case None if is_lapsed_lease(run, u.now):
            _take_back(u, run)
        case None:
            pass


def _take_back(u: Unit, run: Run) -> None:
    """A worker outside stopped renewing: its attempt has failed, and its run is free for the next one."""
    following = u.save(lease_lapsed(run, u.now))
    tick = u.one("get_tick", run_id=run.run_id, tick=run.tick)
    payload = {
        "because": "lease_lapsed",
        "attempt": following.attempt,
        "status": following.status,
        "epoch": run.lock_epoch,
        "instance": run.locked_by,
    }
    where = {"tick": run.tick, "call": tick["calls"], "caused_by": tick["caused_by"]} if tick else {}
    u.event(run.run_id, "tick.given_back", payload, **where)


def crash_error(run: Run) -> ErrorInfo:
    message = f"{run.locked_by} stopped while it worked on tick {run.tick}; its lock lapsed at {run.lock_expires_at}"
    return ErrorInfo("crashed", message, {"attempt": run.attempt + 1})


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


def _claim(u: Unit, run: Run, ask: ClaimAsk) -> Claim | None:
    if kernel_end(run, u.now) or is_lapsed_lease(run, u.now):
        do_what_is_owed(u, run)
        return None
    around = surroundings(u, run, ask.clogs)
    held = holds(run, around, u.now)
    if held:
        if [hold.code for hold in held] == ["key_full"] and run.parked_on is None:
            park_if_full(u, run)
            u.flush()
        return None
    clog = ask.clogs[run.clog_id]
    following = claimed(run, ask.instance_id, clog.lock_ms, u.now, is_lease=ask.is_lease)
    if isinstance(following, EndNow):
        return None
    u.save(following)
    if run.key_count:
        # The slots are taken at once: the next candidate of this claim must see it.
        u.flush()
    if run.tick_open:
        call, reason, inputs = _call_again(u, run, following, clog, ask.instance_id)
    else:
        call, reason, inputs = _begin(u, following, clog, ask.instance_id)
    return Claim(
        run=info(u, u.run(run.run_id)),
        lock=Lock(run.run_id, following.lock_epoch, clog.lock_ms),
        tick=following.tick,
        call=call,
        reason=reason,
        inputs=inputs,
        claimed_at=u.now,
        lock_expires_at=u.now + clog.lock_ms,
        life=run.life,
    )


def _begin(u: Unit, run: Run, clog: ClaimableClog, instance_id: str) -> tuple[int, str, tuple[Input, ...]]:
    """A new tick: its number, reason and inputs are fixed here, for every call of it."""
    inputs = () if run.ending else fix_inputs(u, run, clog.takes_all_inputs)
    reason = str(run.ending) if run.ending else str(inputs[0].kind) if inputs else WAKE
    u.do(
        "insert_tick",
        run_id=run.run_id,
        tick=run.tick,
        reason=reason,
        caused_by=inputs[0].caused_by if inputs else None,
        epoch=run.lock_epoch,
        instance_id=instance_id,
        version=clog.version,
        now=u.now,
    )
    return 1, reason, inputs


def _call_again(
    u: Unit, before: Run, run: Run, clog: ClaimableClog, instance_id: str
) -> tuple[int, str, tuple[Input, ...]]:
    """The same tick once more, after a crash, a failed attempt or a give-back."""
    tick = u.one(
        "reclaim_tick",
        run_id=run.run_id,
        tick=run.tick,
        epoch=run.lock_epoch,
        instance_id=instance_id,
        version=clog.version,
        now=u.now,
    )
    assert tick is not None
    was_given_back = before.status is RunStatus.PENDING and before.wake_at is None
    because = "crash" if before.status is RunStatus.ACTIVE else "give_back" if was_given_back else "retry"
    payload = {"because": because, "attempt": run.attempt, "previous": before.locked_by}
    u.event(run.run_id, "tick.restarted", payload, tick=run.tick, call=tick["calls"], caused_by=tick["caused_by"])
    return tick["calls"], tick["reason"], fixed_inputs(u, run)


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
