"""Which intended times fire now. Pure: the state table of missed runs and of runs that overlap."""

from dataclasses import dataclass
from typing import Literal

from clogs.schedule.plan import Plan

Missed = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "queue"]

MOST_COUNTED = 1_000
MOST_QUEUED = 100


@dataclass(frozen=True, slots=True)
class Due:
    """`times` fire, oldest first. Everything up to `until` is settled; so many `missed` ones, or more, do not fire."""

    times: tuple[int, ...]
    until: int
    missed: int = 0
    or_more: bool = False


def due(plan: Plan, missed: Missed, grace_ms: int, catch_up: int, *, after: int, now: int) -> Due:
    """What the time since `after` asks for.

    The newest intended time is on time within its grace. Everything older, and the newest if it is later than that, has
    been missed: nobody poked, or the schedule was paused. Then `skip` lets them go, `once` fires the newest for all of
    them, and `all` fires each, but at most the `catch_up` newest.
    """
    found = plan.newest(catch_up if missed == "all" else 1, after, now)
    if not found:
        return Due((), after)
    newest = found[-1]
    fires = tuple(found) if missed != "skip" or now - newest <= grace_ms else ()
    counted = plan.count(MOST_COUNTED, after, newest)
    return Due(fires, newest, counted - len(fires), counted == MOST_COUNTED)


@dataclass(frozen=True, slots=True)
class Admitted:
    """`starts` begin now, `queue` waits for a run to end, `dropped` do not happen."""

    starts: tuple[int, ...]
    queue: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def admit(overlap: Overlap, *, is_busy: bool, queue: tuple[int, ...], times: tuple[int, ...]) -> Admitted:
    """Which of the times begin, if a run of this schedule is still at work, or none is."""
    waiting = (*queue, *times)
    if overlap == "allow":
        return Admitted(waiting)
    free = 0 if is_busy else 1
    starts, rest = waiting[:free], waiting[free:]
    if overlap == "skip":
        return Admitted(starts, dropped=rest)
    return Admitted(starts, rest[:MOST_QUEUED], rest[MOST_QUEUED:])
