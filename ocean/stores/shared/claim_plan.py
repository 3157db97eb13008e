"""Claims and agendas, worked out from what a store has read: pure, and the same for every store."""

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
"""Of a claim: one may only make ends that are owed, a bounded batch of them, and then there is another."""
COUNT_CAP = 1_000


def surroundings_of(
    run: Run, clog: ClogRecord | None, full_key: FullKey | None, clog_ids: Collection[str]
) -> Surroundings:
    """What else decides whether the run can be claimed by somebody who has these clogs."""
    return Surroundings(
        is_here=run.clog_id in clog_ids,
        is_clog_paused=clog is not None and clog.paused,
        is_external=clog is not None and clog.external,
        full_key=full_key,
    )


def once_claimed(run: Run, around: Surroundings, ask: ClaimAsk, now: int) -> Run | NotClaimable:
    """The run as a claim of it would leave it, or why there would be none."""
    if owed := kernel_end(run, now):
        return NotClaimable(end=owed)
    if is_lapsed_lease(run, now):
        return NotClaimable()
    if found := holds_of_its_own(run, around, now):
        return NotClaimable(holds=found)
    lock_ms = ask.clogs[run.clog_id].lock_ms
    following = claimed(run, ask.instance_id, lock_ms, now, is_lease=ask.is_lease)
    return NotClaimable(end=following.reason) if isinstance(following, EndNow) else following


class Call(NamedTuple):
    """One call of a tick: which of them, why the tick began and with what, and the event that woke it."""

    number: int
    reason: str
    inputs: tuple[Input, ...]
    caused_by: str | None


def first_call(run: Run, due: tuple[Input, ...]) -> Call:
    """A new tick: its reason and inputs are fixed for every call of it. A last tick gets none."""
    inputs = () if run.ending else due
    reason = str(run.ending) if run.ending else str(inputs[0].kind) if inputs else WAKE
    return Call(1, reason, inputs, inputs[0].caused_by if inputs else None)


def further_call(tick: Row, fixed: tuple[Input, ...]) -> Call:
    """The same tick once more, after a crash, a failed attempt or a give-back."""
    return Call(tick["calls"] + 1, tick["reason"], fixed, tick["caused_by"])


def claim_of(following: Run, shown: RunInfo, call: Call, ask: ClaimAsk, now: int) -> Claim:
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
    )


@dataclass(frozen=True, slots=True)
class Stock:
    """What one lane has in the due index, or one paused clog of last ticks: when the first is due, how many are now."""

    is_ours: bool
    first_due_at: int | None
    due: int


def agenda_of(lanes: Iterable[Stock], last_ticks: Iterable[Stock], owed_at: int | None, now: int) -> Agenda:
    """Last ticks of paused clogs go on: they are counted among their lanes, and are none of those held back."""
    due = unclaimable = 0
    times = [owed_at]
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
