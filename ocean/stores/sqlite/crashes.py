"""Crashes of processes: which runs were at work together, and calls of suspects apart from other runs."""

from collections.abc import Mapping, Sequence

from ocean.state.records import Lock, Run, RunStatus
from ocean.state.suspects import called_apart, needs_note, noted
from ocean.stores.sqlite.engine.unit_of_work import Unit


def with_crash_noted(u: Unit, run: Run) -> Run:
    """Note the crash of the run's process, if there was one, in all runs that it had locked. Returns this run."""
    if not needs_note(run, u.now):
        return run
    for each in _notes(u, run).values():
        u.save(each)
    u.flush()
    return u.run(run.run_id)


def as_if_noted(u: Unit, run: Run) -> Run:
    """Return the run as `with_crash_noted` would, and write nothing."""
    return _notes(u, run).get(run.run_id, run) if needs_note(run, u.now) else run


def _notes(u: Unit, run: Run) -> Mapping[str, Run]:
    crash = {"locked_by": run.locked_by, "lapsed_at": run.lock_expires_at}
    rows = [row for clog in u.all("list_clogs") for row in u.all("active_runs_of", clog_id=clog["clog_id"], **crash)]
    return noted([each for each in u.load(rows) if each.status is RunStatus.ACTIVE and each.locked_by == run.locked_by])


def call_apart(u: Unit, locks: Sequence[Lock]) -> set[Lock]:
    """Write the company of suspects whose calls begin now. Returns the locks that are lost."""
    lost = set()
    for lock in locks:
        run = u.find(lock.run_id)
        if run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != lock.epoch:
            lost.add(lock)
        else:
            u.save(called_apart(run, len(locks)))
    return lost
