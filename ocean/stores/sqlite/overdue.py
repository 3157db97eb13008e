"""Overdue changes, which any poke makes for any run, whatever clogs the process has: due ends, and lapsed leases."""

from typing import assert_never

from ocean.state.eligibility import is_lapsed_lease, kernel_end
from ocean.state.outcomes import ErrorInfo
from ocean.state.records import Ending, Run, changed
from ocean.state.transitions import lease_lapsed
from ocean.stores.sqlite.ending import request_end
from ocean.stores.sqlite.engine.unit_of_work import Unit


def settle_overdue(u: Unit, run: Run) -> None:
    """End a run whose end is due, or take back its lease if that has lapsed."""
    end = kernel_end(run, u.now)
    match end:
        case Ending.DEADLINE:
            error = ErrorInfo("deadline_exceeded", f"the deadline {run.deadline_at} passed", None)
            request_end(u, run.run_id, Ending.DEADLINE, error)
        case Ending() as reason:
            u.save(changed(run, attempt=run.attempt + 1))
            request_end(u, run.run_id, reason, crash_error(run))
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
    message = f"{run.locked_by} stopped while it worked on tick {run.tick}; its lock lapsed at {run.lock_expires_at}"
    return ErrorInfo("crashed", message, {"attempt": run.attempt + 1})
