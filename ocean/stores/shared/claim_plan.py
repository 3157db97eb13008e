"""Claims and agendas, computed from rows that a store has read. Pure functions, the same for every store."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ocean.kernel.store.claims import ClaimAsk, NotClaimable
from ocean.state.eligibility import FullKey, Surroundings, holds_of_its_own, is_lapsed_lease, kernel_end
from ocean.state.records import WAKE, Agenda, Claim, ClogRecord, Input, Lock, Run, RunInfo
from ocean.state.transitions import EndNow, claimed
from ocean.stores.shared.rows import Row

MOST_INPUTS = 256
MOST_ROUNDS = 50
"""How often a claim is repeated: one may only end overdue runs, a bounded batch of them, and claim nothing."""
COUNT_CAP = 1_000


def surroundings_of(
    run: Run, clog: ClogRecord | None, full_key: FullKey | None, clog_ids: Collection[str]
) -> Surroundings:
    """What else decides whether a process with these clogs can claim the run."""
    return Surroundings(
        is_here=run.clog_id in clog_ids,
        is_clog_paused=clog is not None and clog.paused,
        is_external=clog is not None and clog.external,
        full_key=full_key,
    )


def run_after_claim(run: Run, around: Surroundings, ask: ClaimAsk, now: int) -> Run | NotClaimable:
    """Return the run as a claim would leave it, or why it cannot be claimed."""
    if end := kernel_end(run, now):
        return NotClaimable(end=end)
    if is_lapsed_lease(run, now):
        return NotClaimable()
    if found := holds_of_its_own(run, around, now):
        return NotClaimable(holds=found)
    lock_ms = ask.clogs[run.clog_id].lock_ms
    following = claimed(run, ask.instance_id, lock_ms, now, is_lease=ask.is_lease)
    return NotClaimable(end=following.reason) if isinstance(following, EndNow) else following


class TickCall(NamedTuple):
    """One call of a tick: its number, the reason and inputs of the tick, and the event that caused it."""

    number: int
    reason: str
    inputs: tuple[Input, ...]
    caused_by: str | None


def first_call(run: Run, due: tuple[Input, ...]) -> TickCall:
    """The first call of a new tick, whose reason and inputs are fixed for every further call. A last tick has none."""
    inputs = () if run.ending else due
    reason = str(run.ending) if run.ending else str(inputs[0].kind) if inputs else WAKE
    return TickCall(1, reason, inputs, inputs[0].caused_by if inputs else None)


def repeated_call(tick: Row, fixed: tuple[Input, ...]) -> TickCall:
    """A further call of the same tick, after a crash, a failed attempt or a give-back."""
    return TickCall(tick["calls"] + 1, tick["reason"], fixed, tick["caused_by"])


def claim_of(following: Run, shown: RunInfo, call: TickCall, ask: ClaimAsk, now: int) -> Claim:
    lock_ms = ask.clogs[following.clog_id].lock_ms
    return Claim(
        run=shown,
        lock=Lock(following.run_id, following.lock_epoch, lock_ms),
        tick=following.tick,
        call=call.number,
        reason=call.reason,
        inputs=call.inputs,
        claimed_at=now,
        lock_expires_at=now + lock_ms,
        life=following.life,
        crash_company=following.crash_company,
    )


@dataclass(frozen=True, slots=True)
class DueCount:
    """The due runs of a lane, or the last ticks of a paused clog: when the first is due, and how many are due now."""

    is_ours: bool
    first_due_at: int | None
    due: int


def agenda_of(lanes: Iterable[DueCount], last_ticks: Iterable[DueCount], overdue_at: int | None, now: int) -> Agenda:
    """Build the agenda. Last ticks run although their clog is paused: they count as due, not as unclaimable."""
    due = unclaimable = 0
    times = [overdue_at]
    for lane in lanes:
        times += [lane.first_due_at] if lane.is_ours else []
        due += lane.due if lane.is_ours else 0
        unclaimable += 0 if lane.is_ours else lane.due
    for ticks in last_ticks:
        if ticks.is_ours:
            times.append(ticks.first_due_at)
            due, unclaimable = due + ticks.due, unclaimable - ticks.due
    first = min((at for at in times if at is not None), default=None)
    age = max(0, now - first) if first is not None else 0
    return Agenda(min(due, COUNT_CAP), first, age, min(unclaimable, COUNT_CAP))
