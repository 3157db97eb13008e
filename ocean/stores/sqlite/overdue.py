"""What any poke owes to any run, whatever clogs it has: ends that are due, and leases to take back."""

from ocean.state.eligibility import is_lapsed_lease, kernel_end
from ocean.state.outcomes import ErrorInfo
from ocean.state.records import Ending, Run, changed
from ocean.state.transitions import lease_lapsed
from ocean.stores.sqlite.ending import request_end
from ocean.stores.sqlite.engine.unit_of_work import Unit


def settle_overdue(u: Unit, run: Run) -> None:
    """What any `advance` does, whatever clogs it has: ends that are due, and taking back a lease that lapsed."""
    match kernel_end(run, u.now):
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
