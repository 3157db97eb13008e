"""When a schedule intends to fire. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile

from clogs.schedule.cron import Cron

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Plan:
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
