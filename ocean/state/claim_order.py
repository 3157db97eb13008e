"""The order of claims: by priority, then by how long a run has been due; no run waits for ever. Pure."""

from collections.abc import Iterable
from operator import attrgetter

from ocean.state.records import Run
from ocean.state.transitions import due_at

FAIR_EVERY = 8
"""One claim in eight takes the run that has been due longest, whatever its priority."""


def pick(due: Iterable[Run], limit: int, slot: int) -> list[Run]:
    """Return at most `limit` of the due runs, in the order to claim them. `slot` counts the claims made before."""
    by_age = sorted(due, key=_age)
    if len({run.priority for run in by_age}) < 2:
        return by_age[:limit]
    by_urgency = sorted(by_age, key=attrgetter("priority"))
    urgent, old = iter(by_urgency), iter(by_age)
    chosen: dict[str, Run] = {}
    while len(chosen) < min(limit, len(by_age)):
        is_fair = (slot + len(chosen)) % FAIR_EVERY == FAIR_EVERY - 1
        following = next(run for run in (old if is_fair else urgent) if run.run_id not in chosen)
        chosen[following.run_id] = following
    return list(chosen.values())


def _age(run: Run) -> tuple[int, int, str]:
    """Longest due first; of equals, the one claimed less often, so that a run that continues is last."""
    return (due_at(run) or 0, run.lock_epoch, run.run_id)
