"""The state machine: a run and what happens to it → the next state of the run. Pure.

    created ─▶ idle ◀──ok── active ──continue, retry──▶ pending
                │             ▲ │                          ▲
                └──signal──▶ pending ◀──signal─────────────┤
                              │ └──wait──▶ waiting ────────┘
                              ▼
                       done, failed (final)

Every function returns a new `Run`, or raises the error that the caller gets. The SQLite store calls them inside the
transaction that has read the row. The PostgreSQL store has the same functions in plpgsql; tests compare each with its
twin here.
"""

from dataclasses import dataclass
from typing import Any, assert_never

from ocean.state.backoff import RetryPolicy, is_spent, next_attempt_at
from ocean.state.errors import LockLost, RunEnded
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait
from ocean.state.records import ENDED, Delay, Ending, Run, RunStatus, changed

GIVE_BACKS_FREE = 2


def due_at(run: Run) -> int | None:
    """Return when a poke has something to do for this run, or None for never. This is the one indexed column."""
    if run.status in ENDED:
        return None
    starts_at = next_call_at(run) if run.parked_on is None else None
    if run.deadline_at is None or run.ending:
        return starts_at
    return run.deadline_at if starts_at is None else min(starts_at, run.deadline_at)


def next_call_at(run: Run) -> int | None:
    """Return when the run's handler is to be called next if its concurrency keys allow it; None: not by time alone."""
    if run.paused and run.ending is None:
        return None
    match run.status:
        case RunStatus.PENDING:
            return run.wake_at if run.wake_at is not None else run.ready_at or 0
        case RunStatus.WAITING:
            return run.wake_at
        case RunStatus.ACTIVE:
            return run.lock_expires_at
        case RunStatus.IDLE | RunStatus.DONE | RunStatus.FAILED:
            return None
        case _:
            assert_never(run.status)


def wants_slots(run: Run, now: int) -> bool:
    """Return whether a run that is not active would be called now, and so needs a slot of each of its keys.

    A clock that is set back takes no run out of line: a run that was due when its row was written is still due.
    """
    starts_at = next_call_at(run)
    return run.status is not RunStatus.ACTIVE and starts_at is not None and starts_at <= max(now, run.updated_at)


def parked(run: Run, key: str, now: int) -> Run:
    """Park a run because the key is full: it leaves the due index and is last in the key's line.

    A last tick is first in line: a paused clog still gets it, and it must not wait behind a run that the clog does
    not get.
    """
    since = 0 if run.ending else now if run.parked_at is None else run.parked_at
    return changed(run, parked_on=key, parked_at=since, updated_at=now)


def unparked(run: Run, now: int) -> Run:
    """Unpark a run: a slot is free, or the run no longer needs one. `parked_at` stays, so that it keeps its place.

    With a clock that is behind, it is not ready earlier than before: it would be called before its input is there.
    """
    ready_at = None if run.ready_at is None else max(now, run.ready_at)
    return changed(run, parked_on=None, ready_at=ready_at, updated_at=max(now, run.updated_at))


def _out_of_line(run: Run) -> Run:
    """Give up the place in line: the call that needed a slot is no longer due, and the next one begins at the end."""
    return changed(run, parked_on=None, parked_at=None)


def is_last_call(run: Run) -> bool:
    """Return whether the current call is the last one: if its lock expires, any `advance` ends the run."""
    if run.status is not RunStatus.ACTIVE:
        return False
    return run.ending is not None or (not run.paused and is_spent(run.attempt + 1, run.max_attempts))


def delayed(run: Run, by: Delay, key: str, until: int, now: int) -> Run:
    """Delay the start of a run that is created, or created again before its first claim."""
    run = changed(_out_of_line(run), ready_at=None, wake_at=until, delayed_by=by, delay_key=key)
    return changed(run, updated_at=now)


def input_arrived(run: Run, available_at: int, now: int) -> Run:
    """An input was appended: by a signal, a timer or a child. A back-off and a running handler are not affected."""
    refuse_if_ended(run)
    match run.status:
        case RunStatus.IDLE | RunStatus.WAITING if available_at <= now:
            free = changed(run, wake_at=None, wait_until=None)
            return changed(free, status=RunStatus.PENDING, ready_at=now, updated_at=now)
        case RunStatus.IDLE:
            return changed(run, status=RunStatus.WAITING, wake_at=available_at, updated_at=now)
        case RunStatus.WAITING if run.wake_at is None or available_at < run.wake_at:
            return changed(run, wake_at=available_at, updated_at=now)
        case RunStatus.PENDING | RunStatus.ACTIVE | RunStatus.WAITING | RunStatus.DONE | RunStatus.FAILED:
            return changed(run, updated_at=now)
        case _:
            assert_never(run.status)


def inbox_changed(run: Run, next_input_at: int | None, now: int) -> Run:
    """A direct call set or cancelled timers: an idle or waiting run wakes at the earliest time now."""
    refuse_if_ended(run)
    if run.status not in (RunStatus.IDLE, RunStatus.WAITING):
        return changed(run, updated_at=now)
    if next_input_at is not None and next_input_at <= now:
        return input_arrived(run, next_input_at, now)
    wake_at = min((time for time in (run.wait_until, next_input_at) if time is not None), default=None)
    status = RunStatus.IDLE if wake_at is None else RunStatus.WAITING
    return changed(_out_of_line(run), status=status, wake_at=wake_at, updated_at=now)


def refuse_if_ended(run: Run) -> None:
    """Raise `RunEnded` if the run has ended or is ending."""
    if run.is_ended:
        raise RunEnded(f"run {run.run_id} has ended ({run.status}); create a new one", status=run.status)
    if run.ending:
        raise RunEnded(f"run {run.run_id} is ending ({run.ending}); create a new one", status=run.status)


@dataclass(frozen=True, slots=True)
class EndNow:
    """The run must end without a further call, for this reason and after this many failed attempts."""

    reason: Ending
    attempt: int


def claimed(run: Run, holder: str, lock_ms: int, now: int, *, is_lease: bool = False) -> Run | EndNow:
    """Lock a run that is due. An expired lock means a crash, and a crash is a failed attempt."""
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


def refuse_unless_held(run: Run | None, epoch: int, run_id: str) -> Run:
    """The fence: raise `LockLost` for a write under an old epoch, or for a run that is no longer active."""
    if run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != epoch:
        raise LockLost(f"run {run_id} is no longer held under epoch {epoch}; this call's work is discarded")
    return run


def renewed(run: Run, lock_ms: int, now: int) -> Run:
    """Extend the lock."""
    return changed(run, lock_expires_at=max(now + lock_ms, run.lock_expires_at or 0))


def lock_released(run: Run, now: int) -> Run:
    """The holder's process is gone: the lock expires now, as if its time were over. Nothing else changes."""
    return changed(run, lock_expires_at=min(now, run.lock_expires_at or 0))


def settled(run: Run, outcome: Ok | Done | Continue | Wait | Failed, next_input_at: int | None, now: int) -> Run:
    """A tick was committed. `next_input_at` is when the first input in the inbox is available."""
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
        case _:
            assert_never(outcome)


def retried(run: Run, outcome: Retry, policy: RetryPolicy, tick_began_at: int, now: int) -> Run | EndNow:
    """An attempt failed. The tick stays open, with its inputs; signals that came meanwhile queue behind it."""
    attempt = run.attempt + 1
    if run.ending:
        return EndNow(run.ending, attempt)
    seed = (run.run_id, run.tick)
    wake_at = next_attempt_at(policy, run.max_attempts, attempt, tick_began_at, now, seed, outcome.after_ms)
    if wake_at is None:
        return EndNow(Ending.EXHAUSTED, attempt)
    return changed(_unlocked(run, now), status=RunStatus.PENDING, attempt=attempt, wake_at=wake_at)


def given_back(run: Run, give_backs: int, now: int) -> Run | EndNow:
    """A call was stopped by its poke. Two are free; from the third on each is a failed attempt."""
    attempt = run.attempt + (give_backs > GIVE_BACKS_FREE)
    if run.ending and give_backs > GIVE_BACKS_FREE:
        return EndNow(run.ending, attempt)
    if attempt > run.attempt and is_spent(attempt, run.max_attempts):
        return EndNow(Ending.EXHAUSTED, attempt)
    return changed(_unlocked(run, now), status=RunStatus.PENDING, attempt=attempt, ready_at=now)


def lease_lapsed(run: Run, now: int) -> Run:
    """An external worker did not renew: a failed attempt, not the last one; the tick waits for the next worker."""
    return changed(_unlocked(run, now), status=RunStatus.PENDING, attempt=run.attempt + 1, ready_at=now)


def end_requested(run: Run, reason: Ending, has_on_end: bool, now: int) -> Run:
    """The kernel ends the run: at once, or after one last tick of its clog. A running handler loses its lock."""
    refuse_if_ended(run)
    if not has_on_end:
        return ended(run, RunStatus.FAILED, now)
    free = _unlocked(run, now)
    return changed(free, status=RunStatus.PENDING, ready_at=now, ending=reason, tick_open=False)


def ended(run: Run, status: RunStatus, now: int, **also: Any) -> Run:
    """End the run: it never has a lock, a wake time or a due time again."""
    return _unlocked(run, now, status=status, ending=None, tick_open=False, paused=False, ended_at=now, **also)


def paused(run: Run, now: int) -> Run:
    """Pause the run."""
    refuse_if_ended(run)
    return changed(run, paused=True, updated_at=now)


def resumed(run: Run, now: int) -> Run:
    """Resume the run."""
    refuse_if_ended(run)
    return changed(run, paused=False, updated_at=now)


_UNLOCKED: dict[str, Any] = {
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
    return changed(run, **_UNLOCKED, updated_at=now, **also)
