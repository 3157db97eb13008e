"""A clock that stands still until `advance` moves it. Timers that become due fire in order."""

import heapq
import itertools
from collections.abc import Callable

from ocean.state.clock import Cancel

START = 1_700_000_000_000


class ManualClock:
    """A clock that only the test moves."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._order = itertools.count()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()

    def now(self) -> int:
        """Return the current time."""
        return self._now

    @property
    def timers(self) -> int:
        """How many timers are set and have neither fired nor been cancelled."""
        return sum(number not in self._cancelled for _, number, _ in self._timers)

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        """Call `then` when the time has moved by `ms`; return a function that cancels it."""
        number = next(self._order)
        heapq.heappush(self._timers, (self._now + max(ms, 0), number, then))
        return lambda: self._cancelled.add(number)

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """Call `beat` every `ms`, on the thread that moves the time; return a function that stops it."""
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True

        def again() -> None:
            if not stopped:
                self.call_later(ms, again)
                beat()

        self.call_later(ms, again)
        return stop

    def advance(self, ms: int) -> None:
        """Move time forward. Every timer that becomes due fires at its own moment."""
        until = self._now + ms
        while self._timers and self._timers[0][0] <= until:
            at, number, then = heapq.heappop(self._timers)
            self._now = max(self._now, at)
            if number in self._cancelled:
                self._cancelled.discard(number)
            else:
                then()
        self._now = until

    def jump(self, ms: int) -> None:
        """Move time without firing timers, as for a process that was frozen or a clock that was set."""
        self._now += ms
