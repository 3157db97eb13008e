"""How a run ends: at once, or after one last tick of its clog. Pure, and part of the state machine in `transitions`."""

from typing import Any

from ocean.state.errors import RunEnded
from ocean.state.records import Ending, LastTick, Run, RunStatus, changed


def refuse_if_ended(run: Run) -> None:
    """Raise `RunEnded` if the run has ended or is ending."""
    if run.is_ended:
        raise RunEnded(f"run {run.run_id} has ended ({run.status}); create a new one", status=run.status)
    if run.ending:
        raise RunEnded(f"run {run.run_id} is ending ({run.ending}); create a new one", status=run.status)


def end_requested(run: Run, reason: Ending, last_tick: LastTick | None, now: int) -> Run:
    """The kernel ends the run: at once, or after one last tick of its clog.

    A call in progress may store the result of a step until `stop_by`; then, or when it has stopped before, the last
    tick begins.
    """
    refuse_if_ended(run)
    if last_tick is None:
        return ended(run, RunStatus.FAILED, now)
    begun = changed(run, ending=reason, end_attempt=0, end_max_attempts=last_tick.max_attempts, updated_at=now)
    is_at_work = run.status is RunStatus.ACTIVE and (run.lock_expires_at or 0) > now and not run.leased
    if is_at_work and reason is not Ending.EXHAUSTED and last_tick.grace_ms > 0:
        return changed(begun, stop_by=now + last_tick.grace_ms)
    return stopped(begun, now)


def stopped(run: Run, now: int) -> Run:
    """The run that is ending has no call any more: its last tick is due. That call's tick keeps no outcome."""
    return changed(unlocked(run, now), status=RunStatus.PENDING, ready_at=now, tick_open=False)


def end_retried(run: Run, reason: Ending, last_tick: LastTick, now: int) -> Run:
    """Call the last tick of a run again that has ended without it: with the same tick number, and all its attempts."""
    begun = changed(run, ending=reason, end_attempt=0, end_max_attempts=last_tick.max_attempts, ended_at=None)
    return changed(begun, status=RunStatus.PENDING, wake_at=now, tick_open=True, end_incomplete=False, updated_at=now)


def ended(run: Run, status: RunStatus, now: int, **also: Any) -> Run:
    """End the run: it never has a lock, a wake time or a due time again."""
    return unlocked(run, now, status=status, ending=None, tick_open=False, paused=False, ended_at=now, **also)


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
            "stop_by",
            "crash_company",
            "crash_epoch",
        )
    ),
}


def unlocked(run: Run, now: int, **also: Any) -> Run:
    """Return the run without a lock, a place in line or a time at which it is called."""
    return changed(run, **_UNLOCKED, updated_at=now, **also)
