"""The intended times of a schedule, and which of them fire now: missed times, and runs that overlap. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile
from typing import Literal

from clogs.schedule.cron import Cron

MINUTE_MS = 60_000
Missed = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "queue"]
MOST_COUNTED = 1_000
MOST_QUEUED = 100


@dataclass(frozen=True, slots=True)
class Timetable:
    """The times of a cron expression, or every `every_ms` from `anchor_at`; from `start_at` on, before `end_at`."""

    cron: Cron | None = None
    every_ms: int = 0
    anchor_at: int = 0
    start_at: int = 0
    end_at: int | None = None

    def after(self, at: int) -> Iterator[int]:
        """Yield every intended time after this one, in order."""
        begin = max(at, self.start_at - 1)
        times = self.cron.after(begin) if self.cron else self._steps(begin)
        return takewhile(lambda time: self.end_at is None or time < self.end_at, times)

    def next_after(self, at: int) -> int | None:
        return next(self.after(at), None)

    def newest(self, most: int, after: int, until: int) -> list[int]:
        """Return the last `most` intended times after `after` and up to `until`, oldest first."""
        window = MINUTE_MS
        while True:
            begin = max(after, until - window)
            found = list(takewhile(lambda time: time <= until, self.after(begin)))
            if len(found) >= most or begin == after:
                return found[-most:]
            window *= 4

    def count(self, cap: int, after: int, until: int) -> int:
        """Count the intended times after `after` and up to `until`, at most `cap`."""
        return sum(1 for _ in takewhile(lambda time: time <= until, islice(self.after(after), cap)))

    def _steps(self, after: int) -> Iterator[int]:
        first = (after - self.anchor_at) // self.every_ms + 1
        return (self.anchor_at + step * self.every_ms for step in count(first))


@dataclass(frozen=True, slots=True)
class Due:
    """`times` fire, oldest first. Times up to `until` are settled; `missed` of them, or more, do not fire."""

    times: tuple[int, ...]
    until: int
    missed: int = 0
    or_more: bool = False


def due(plan: Timetable, missed: Missed, grace_ms: int, catch_up: int, *, after: int, now: int) -> Due:
    """Decide which intended times since `after` fire now.

    The newest intended time is on time within `grace_ms`. Older ones, and a newest that is later than that, were
    missed: no process poked, or the schedule was paused. `skip` drops missed times, `once` fires the newest in place of
    all of them, and `all` fires each, but at most the `catch_up` newest.
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
    """`starts` fire now, `queue` waits for a run to end, `dropped` never fire."""

    starts: tuple[int, ...]
    queue: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


def admit(overlap: Overlap, *, is_busy: bool, queue: tuple[int, ...], times: tuple[int, ...]) -> Admitted:
    """Decide which of the times fire, depending on whether a run of this schedule has not ended."""
    waiting = (*queue, *times)
    if overlap == "allow":
        return Admitted(waiting)
    free = 0 if is_busy else 1
    starts, rest = waiting[:free], waiting[free:]
    if overlap == "skip":
        return Admitted(starts, dropped=rest)
    return Admitted(starts, rest[:MOST_QUEUED], rest[MOST_QUEUED:])
