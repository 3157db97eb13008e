"""The state machine, pure: a run and what happens to it → the run as it is next.

    created ─▶ idle ◀──ok── active ──continue, retry──▶ pending
                │             ▲ │                          ▲
                └──signal──▶ pending ◀──signal─────────────┤
                              │ └──wait──▶ waiting ────────┘
                              ▼
                       done, failed (final)

Every function answers a new `Run`, or raises the refusal a caller gets. Stores call them inside the transaction
that has read the row, so that what decides is what is there.
"""

from dataclasses import dataclass
from typing import Any

from ocean.state.backoff import RetryPolicy, delay_for
from ocean.state.errors import LockLost, RunEnded
from ocean.state.ids import even_roll
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait
from ocean.state.records import ENDED, Delay, Ending, Run, RunStatus, changed

GIVE_BACKS_FREE = 2


def due_at(run: Run) -> int | None:
    """When a poke has something to do for this run: the one indexed column. None means never."""
    if run.status in ENDED:
        return None
    starts_at = next_call_at(run) if run.parked_on is None else None
    if run.deadline_at is None or run.ending:
        return starts_at
    return run.deadline_at if starts_at is None else min(starts_at, run.deadline_at)


def next_call_at(run: Run) -> int | None:
    """When the run's handler is to be called next, if its concurrency keys let it. None: not by time alone."""
    if run.paused and run.ending is None:
        return None
    match run.status:
        case RunStatus.PENDING:
            return run.wake_at if run.wake_at is not None else run.ready_at or 0
        case RunStatus.WAITING:
            return run.wake_at
        case RunStatus.ACTIVE:
            return run.lock_expires_at
        case _:
            return None


def wants_slots(run: Run, now: int) -> bool:
    """Whether a run that is not at work would be called now, and so needs a slot of each of its keys.

    A clock that is set back takes no run out of line: what was due when the row was written still is.
    """
    starts_at = next_call_at(run)
    return run.status is not RunStatus.ACTIVE and starts_at is not None and starts_at <= max(now, run.updated_at)


def parked(run: Run, key: str, now: int) -> Run:
    """The key is full: out of the due index, in line behind those who were parked before.

    A last tick goes before them all: it is the only call that a paused clog still gets, and must not stand behind
    one that it does not get.
    """
    since = 0 if run.ending else now if run.parked_at is None else run.parked_at
    return changed(run, parked_on=key, parked_at=since, updated_at=now)


def unparked(run: Run, now: int) -> Run:
    """A slot is free, or the run no longer wants one. `parked_at` stays: if it must park again, it keeps its place.

    By a clock that is behind it is not ready before it was: it would be called before its input is there.
    """
    ready_at = None if run.ready_at is None else max(now, run.ready_at)
    return changed(run, parked_on=None, ready_at=ready_at, updated_at=max(now, run.updated_at))


def _out_of_line(run: Run) -> Run:
    """What it wanted a slot for is no longer to be done: the next wait is a new one, at the end of the line."""
    return changed(run, parked_on=None, parked_at=None)


def is_last_call(run: Run) -> bool:
    """Whether the call at work is the last one: if its lock lapses, any `advance` ends the run."""
    if run.status is not RunStatus.ACTIVE:
        return False
    return run.ending is not None or (not run.paused and is_spent(run.attempt + 1, run.max_attempts))


def delayed(run: Run, by: Delay, key: str, until: int, now: int) -> Run:
    """A run that is created, or created once more before its first claim, starts at a time of its own."""
    run = changed(_out_of_line(run), ready_at=None, wake_at=until, delayed_by=by, delay_key=key)
    return changed(run, updated_at=now)


def input_arrived(run: Run, available_at: int, now: int) -> Run:
    """An input was appended: from a signal, a timer, a child. A back-off and a handler at work go on."""
    refuse_if_ended(run)
    match run.status:
        case RunStatus.IDLE | RunStatus.WAITING if available_at <= now:
            free = changed(run, wake_at=None, wait_until=None)
            return changed(free, status=RunStatus.PENDING, ready_at=now, updated_at=now)
        case RunStatus.IDLE:
            return changed(run, status=RunStatus.WAITING, wake_at=available_at, updated_at=now)
        case RunStatus.WAITING if run.wake_at is None or available_at < run.wake_at:
            return changed(run, wake_at=available_at, updated_at=now)
        case _:
            return changed(run, updated_at=now)


def inbox_changed(run: Run, next_input_at: int | None, now: int) -> Run:
    """A direct call set or cancelled timers: an idle or waiting run sleeps until what is first now."""
    refuse_if_ended(run)
    if run.status not in (RunStatus.IDLE, RunStatus.WAITING):
        return changed(run, updated_at=now)
    if next_input_at is not None and next_input_at <= now:
        return input_arrived(run, next_input_at, now)
    wake_at = min((time for time in (run.wait_until, next_input_at) if time is not None), default=None)
    status = RunStatus.IDLE if wake_at is None else RunStatus.WAITING
    return changed(_out_of_line(run), status=status, wake_at=wake_at, updated_at=now)


def refuse_if_ended(run: Run) -> None:
    if run.is_ended:
        raise RunEnded(f"run {run.run_id} has ended ({run.status}); create a new one", status=run.status)
    if run.ending:
        raise RunEnded(f"run {run.run_id} is ending ({run.ending}); create a new one", status=run.status)


@dataclass(frozen=True, slots=True)
class EndNow:
    """No further call: the run is over, for this reason and after this many failed attempts."""

    reason: Ending
    attempt: int


def claimed(run: Run, holder: str, lock_ms: int, now: int, *, is_lease: bool = False) -> Run | EndNow:
    """Take the lock of a run that is due. A lapsed lock is a crash, and a crash is a failed attempt."""
    crashed = run.status is RunStatus.ACTIVE
    attempt = run.attempt + 1 if crashed else run.attempt
    if crashed and run.ending:
        return EndNow(run.ending, attempt)
    if crashed and is_spent(attempt, run.max_attempts):
        return EndNow(Ending.EXHAUSTED, attempt)
    return changed(
        run,
        status=RunStatus.ACTIVE,
        attempt=attempt,
        ready_at=None,
        wake_at=None,
        wait_until=None,
        parked_on=None,
        parked_at=None,
        leased=is_lease,
        locked_by=holder,
        delayed_by=None,
        delay_key=None,
        lock_expires_at=now + lock_ms,
        lock_epoch=run.lock_epoch + 1,
        tick=run.tick if run.tick_open else run.tick + 1,
        tick_open=True,
        updated_at=now,
    )


def is_spent(attempt: int, max_attempts: int | None) -> bool:
    return max_attempts is not None and attempt >= max_attempts


def refuse_unless_held(run: Run | None, epoch: int, run_id: str) -> Run:
    """The fence. A write under an old epoch, or for a run that is no longer active, changes nothing."""
    if run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != epoch:
        raise LockLost(f"run {run_id} is no longer held under epoch {epoch}; this call's work is discarded")
    return run


def renewed(run: Run, lock_ms: int, now: int) -> Run:
    return changed(run, lock_expires_at=max(now + lock_ms, run.lock_expires_at or 0))


def settled(run: Run, outcome: Ok | Done | Continue | Wait | Failed, next_input_at: int | None, now: int) -> Run:
    """A tick committed. `next_input_at` is the availability of the first input still in the inbox."""
    if run.ending:
        return ended(run, RunStatus.FAILED, now)
    if isinstance(outcome, Done):
        return ended(run, RunStatus.DONE, now, attempt=0)
    if isinstance(outcome, Failed):
        return ended(run, RunStatus.FAILED, now, attempt=0)
    free = _unlocked(run, now, attempt=0, tick_open=False)
    has_due_input = next_input_at is not None and next_input_at <= now
    match outcome:
        case Continue():
            return changed(free, status=RunStatus.PENDING, ready_at=now)
        case Ok() | Wait() if has_due_input:
            return changed(free, status=RunStatus.PENDING, ready_at=now)
        case Ok() if next_input_at is None:
            return changed(free, status=RunStatus.IDLE)
        case Ok():
            return changed(free, status=RunStatus.WAITING, wake_at=next_input_at)
        case Wait():
            until = outcome.wake_at(now)
            wake_at = until if next_input_at is None else min(until, next_input_at)
            return changed(free, status=RunStatus.WAITING, wake_at=wake_at, wait_until=until)


def retried(run: Run, outcome: Retry, policy: RetryPolicy, tick_began_at: int, now: int) -> Run | EndNow:
    """A call failed. The tick stays open, with its inputs; signals that came meanwhile queue behind it."""
    attempt = run.attempt + 1
    if run.ending:
        return EndNow(run.ending, attempt)
    is_late = policy.max_elapsed_ms is not None and now - tick_began_at >= policy.max_elapsed_ms
    if is_late or is_spent(attempt, run.max_attempts):
        return EndNow(Ending.EXHAUSTED, attempt)
    roll = even_roll(run.run_id, run.tick, attempt)
    delay = outcome.after_ms if outcome.after_ms is not None else delay_for(policy, attempt, roll)
    return changed(_unlocked(run, now), status=RunStatus.PENDING, attempt=attempt, wake_at=now + delay)


def given_back(run: Run, give_backs: int, now: int) -> Run | EndNow:
    """A call was stopped by its caller. Two are free; from the third on each counts as an attempt."""
    attempt = run.attempt + (give_backs > GIVE_BACKS_FREE)
    if run.ending and give_backs > GIVE_BACKS_FREE:
        return EndNow(run.ending, attempt)
    if attempt > run.attempt and is_spent(attempt, run.max_attempts):
        return EndNow(Ending.EXHAUSTED, attempt)
    return changed(_unlocked(run, now), status=RunStatus.PENDING, attempt=attempt, ready_at=now)


def lease_lapsed(run: Run, now: int) -> Run:
    """A worker outside did not renew: a failed attempt, not its last one, and the tick waits for the next worker."""
    return changed(_unlocked(run, now), status=RunStatus.PENDING, attempt=run.attempt + 1, ready_at=now)


def end_requested(run: Run, reason: Ending, has_on_end: bool, now: int) -> Run:
    """The kernel ends the run: at once, or after one last tick of its clog. A handler at work loses its lock."""
    refuse_if_ended(run)
    if not has_on_end:
        return ended(run, RunStatus.FAILED, now)
    free = _unlocked(run, now)
    return changed(free, status=RunStatus.PENDING, ready_at=now, ending=reason, tick_open=False)


def ended(run: Run, status: RunStatus, now: int, **also: Any) -> Run:
    """Final: no lock, no wake, no due time ever again."""
    return _unlocked(run, now, status=status, ending=None, tick_open=False, paused=False, ended_at=now, **also)


def paused(run: Run, now: int) -> Run:
    refuse_if_ended(run)
    return changed(run, paused=True, updated_at=now)


def resumed(run: Run, now: int) -> Run:
    refuse_if_ended(run)
    return changed(run, paused=False, updated_at=now)


_NOT_AT_WORK: dict[str, Any] = {
    "leased": False,
    **dict.fromkeys(
        (
            "locked_by",
            "lock_expires_at",
            "ready_at",
            "wake_at",
            "wait_until",
            "delayed_by",
            "delay_key",
            "parked_on",
            "parked_at",
        )
    ),
}


def _unlocked(run: Run, now: int, **also: Any) -> Run:
    return changed(run, **_NOT_AT_WORK, updated_at=now, **also)
