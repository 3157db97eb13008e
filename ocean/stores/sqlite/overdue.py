"""Overdue changes, which any poke makes for any run, whatever clogs the process has: due ends, and lapsed leases."""

from typing import assert_never

from ocean.state.eligibility import is_lapsed_lease, kernel_end
from ocean.state.outcomes import ErrorInfo
from ocean.state.records import Ending, Run
from ocean.state.transitions import attempts, lease_lapsed, with_attempts
from ocean.stores.sqlite.crashes import with_crash_noted
from ocean.stores.sqlite.ending import request_end
from ocean.stores.sqlite.engine.unit_of_work import Unit


def settle_overdue(u: Unit, run: Run) -> None:
    """End a run whose end is due, or take back its lease if that has lapsed."""
    run = with_crash_noted(u, run)
    end = kernel_end(run, u.now)
    match end:
        case Ending.DEADLINE if run.ending is None:
            error = ErrorInfo("deadline_exceeded", f"the deadline {run.deadline_at} passed", None)
            request_end(u, run.run_id, Ending.DEADLINE, error)
        case Ending() as reason:
            error = crash_error(run)
            u.save(with_attempts(run, error.details["attempt"]))
            request_end(u, run.run_id, reason, error)
        case None if is_lapsed_lease(run, u.now):
            _take_back(u, run)
        case None:
            pass
        case _:
            assert_never(end)


def _take_back(u: Unit, run: Run) -> None:
    """Unlock a run whose worker has stopped renewing its lease. The attempt counts as failed."""
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
    message = (
        f"{run.locked_by} stopped while it worked on tick {run.tick} of this run alone; its lock lapsed at "
        f"{run.lock_expires_at}"
    )
    return ErrorInfo("crashed", message, {"attempt": attempts(run) + 1})
