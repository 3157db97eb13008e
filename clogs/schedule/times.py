"""When a schedule intends to fire. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile
from typing import Literal

from clogs.schedule.cron import Cron

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Timetable:
    """A cron expression, or every so many ms from an anchor; from `start_at` on, before `end_at`."""

    cron: Cron | None = None
    every_ms: int = 0
    anchor_at: int = 0
    start_at: int = 0
    end_at: int | None = None

    def after(self, at: int) -> Iterator[int]:
        """Every intended time after this one, in order."""
        begin = max(at, self.start_at - 1)
        times = self.cron.after(begin) if self.cron else self._steps(begin)
        return takewhile(lambda time: self.end_at is None or time < self.end_at, times)

    def next_after(self, at: int) -> int | None:
        return next(self.after(at), None)

    def newest(self, most: int, after: int, until: int) -> list[int]:
        """The last few intended times after one and up to the other, oldest first: however many came before them."""
        window = MINUTE_MS
        while True:
            begin = max(after, until - window)
            found = list(takewhile(lambda time: time <= until, self.after(begin)))
            if len(found) >= most or begin == after:
                return found[-most:]
            window *= 4

    def count(self, cap: int, after: int, until: int) -> int:
        """How many there are after one and up to the other, counted no further than the cap."""
        return sum(1 for _ in takewhile(lambda time: time <= until, islice(self.after(after), cap)))

    def _steps(self, after: int) -> Iterator[int]:
        first = (after - self.anchor_at) // self.every_ms + 1
        return (self.anchor_at + step * self.every_ms for step in count(first))


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


def due(plan: Timetable, missed: Missed, grace_ms: int, catch_up: int, *, after: int, now: int) -> Due:
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
