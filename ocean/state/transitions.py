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
from typing import assert_never

from ocean.state.backoff import RetryPolicy, is_spent, next_attempt_at
from ocean.state.ends import ended, refuse_if_ended, stopped, unlocked
from ocean.state.errors import LockLost
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait
from ocean.state.records import ENDED, Delay, Ending, Run, RunStatus, changed
from ocean.state.suspects import NOT_CALLED, counts_as_attempt

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
        case RunStatus.ACTIVE if run.stop_by is not None:
            return min(run.stop_by, run.lock_expires_at or 0)
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
    if run.status is not RunStatus.ACTIVE or run.stop_by is not None or not counts_as_attempt(run):
        return False
    return (run.ending is not None or not run.paused) and is_spent(attempts(run) + 1, most_attempts(run))


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


@dataclass(frozen=True, slots=True)
class EndNow:
    """The run must end without a further call, for this reason and after this many failed attempts (of the last tick,
    if that is what failed)."""

    reason: Ending
    attempt: int


def attempts(run: Run) -> int:
    """Return the failed attempts of the run, or of its last tick if it is ending."""
    return run.attempt if run.ending is None else run.end_attempt


def most_attempts(run: Run) -> int | None:
    """Return how many attempts the run has, or its last tick if it is ending. None means any number."""
    return run.max_attempts if run.ending is None else run.end_max_attempts


def with_attempts(run: Run, count: int) -> Run:
    """Return the run with so many failed attempts, of its last tick if it is ending."""
    return changed(run, attempt=count) if run.ending is None else changed(run, end_attempt=count)


def failed_once_more(run: Run) -> Run | EndNow:
    """Count a failed attempt."""
    count = attempts(run) + 1
    if is_spent(count, most_attempts(run)):
        return EndNow(run.ending or Ending.EXHAUSTED, count)
    return with_attempts(run, count)


def claimed(run: Run, holder: str, lock_ms: int, now: int, *, is_lease: bool = False) -> Run | EndNow:
    """Lock a run that is due. An expired lock means a crash, and a crash is a failed attempt if it `counts_as_attempt`.

    A run whose call was to stop gets its last tick. A suspect stays one until its call ends in order.
    """
    if run.stop_by is not None:
        run = stopped(run, now)
    if run.status is RunStatus.ACTIVE and counts_as_attempt(run):
        following = failed_once_more(run)
        if isinstance(following, EndNow):
            return following
        run = following
    was_called = run.crash_company != NOT_CALLED
    return changed(
        run,
        status=RunStatus.ACTIVE,
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
        crash_company=run.crash_company if was_called else None,
        crash_epoch=run.crash_epoch if was_called else None,
    )


def refuse_unless_held(run: Run | None, epoch: int, run_id: str, *, even_if_ending: bool = False) -> Run:
    """The fence: raise `LockLost` for a write under an old epoch, or for a run that is no longer active.

    A run that is ending during a call takes only what `even_if_ending` allows: results of steps, and streamed events.
    """
    if run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != epoch:
        raise LockLost(f"run {run_id} is no longer held under epoch {epoch}; this call's work is discarded")
    if run.stop_by is not None and not even_if_ending:
        raise call_must_stop(run_id, run.ending)
    return run


def call_must_stop(run_id: str, ending: str | None) -> LockLost:
    """Return the error of a call that goes on although its run is ending."""
    return LockLost(f"run {run_id} is ending ({ending}); the work of this call is discarded, except its steps")


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
    free = unlocked(run, now, attempt=0, tick_open=False)
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
    """An attempt failed. The tick stays open, with its inputs; signals that came meanwhile queue behind it.

    `policy` is the run's, or for a last tick that of its clog.
    """
    count, seed = attempts(run) + 1, (run.run_id, run.tick)
    wake_at = next_attempt_at(policy, most_attempts(run), count, tick_began_at, now, seed, outcome.after_ms)
    if wake_at is None:
        return EndNow(run.ending or Ending.EXHAUSTED, count)
    return changed(unlocked(with_attempts(run, count), now), status=RunStatus.PENDING, wake_at=wake_at)


def given_back(run: Run, give_backs: int, now: int) -> Run | EndNow:
    """A call was stopped by its poke. Two are free; from the third on each is a failed attempt.

    It proves nothing about a suspect, which stays one.
    """
    following = failed_once_more(run) if give_backs > GIVE_BACKS_FREE else run
    if isinstance(following, EndNow):
        return following
    suspicion = {"crash_company": run.crash_company, "crash_epoch": run.crash_epoch}
    return changed(unlocked(following, now), status=RunStatus.PENDING, ready_at=now, **suspicion)


def lease_lapsed(run: Run, now: int) -> Run:
    """An external worker did not renew: a failed attempt, not the last one; the tick waits for the next worker."""
    return changed(unlocked(run, now), status=RunStatus.PENDING, attempt=run.attempt + 1, ready_at=now)


def paused(run: Run, now: int) -> Run:
    """Pause the run."""
    refuse_if_ended(run)
    return changed(run, paused=True, updated_at=now)


def resumed(run: Run, now: int) -> Run:
    """Resume the run."""
    refuse_if_ended(run)
    return changed(run, paused=False, updated_at=now)
