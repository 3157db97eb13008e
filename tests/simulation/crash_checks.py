"""Checks of a claim after a crash: it costs an attempt only if the run was at work alone, as the database knew."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ocean.state.eligibility import kernel_end
from ocean.state.records import Run, RunStatus
from ocean.state.transitions import attempts

if TYPE_CHECKING:
    from tests.simulation.world import World


def peers_of(run: Run, rows: Mapping[str, Run]) -> list[Run]:
    """Return the runs, this one included, that its process had locked, as the database knew."""
    if run.status is not RunStatus.ACTIVE:
        return []
    active = [other for other in rows.values() if other.status is RunStatus.ACTIVE and not other.leased]
    return [other for other in active if other.locked_by == run.locked_by]


def was_alone(run: Run, peers: list[Run]) -> bool:
    """Return whether no other run of its process was called when that died, as the database knew."""
    if run.crash_epoch == run.lock_epoch:
        return run.crash_company == 1
    others = [peer for peer in peers if peer.run_id != run.run_id]
    were_waiting = (peer.crash_company is not None and peer.crash_epoch != peer.lock_epoch for peer in others)
    return run.crash_company is None and all(were_waiting)


def check_crash(world: "World", rows: Mapping[str, Run], before: Run, run: Run, now: int) -> None:
    """Check the attempts of an active run that was claimed. `rows` are those before that commit."""
    counted = attempts(run) - (0 if before.stop_by is not None else attempts(before))
    if before.stop_by is not None or before.leased:
        # The call that was to stop was no attempt of the last tick.
        assert counted == before.leased, f"attempt budget: {before} became {run}"
        return
    peers = peers_of(before, rows)
    if any(kernel_end(peer, now) for peer in peers if peer is not before) or run.locked_by == before.locked_by:
        # In the same commit a peer was perhaps ended, or claimed by the same process, before the crash was noted.
        return
    if any(peer.updated_at >= (before.lock_expires_at or 0) for peer in peers if peer is not before):
        # The process was perhaps alive, and had claimed this peer since: then it was no company.
        return
    is_alone = was_alone(before, peers)
    world.count_event("crash alone" if is_alone else "crash beside others")
    assert counted == is_alone, f"attempt budget: crash alone {is_alone}, counted {counted}: {before} became {run}"
    if counted:
        _check_alone(world, rows, before)


def _check_alone(world: "World", rows: Mapping[str, Run], before: Run) -> None:
    """If it was being called when its process died, no other run was that this process still holds."""
    at_work = world.at_work.get(before.locked_by or "")
    if at_work is None or not at_work.process.is_dead or (before.run_id, before.lock_epoch) not in at_work.calls:
        return
    for other_id, epoch in at_work.calls:
        other = rows.get(other_id)
        if other is not None and other_id != before.run_id and other.lock_epoch == epoch:
            is_held = other.status is RunStatus.ACTIVE and other.locked_by == before.locked_by
            assert not is_held, f"attempt budget: {before} was called beside {other} when their process died"
