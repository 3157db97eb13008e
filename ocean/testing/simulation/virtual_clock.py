"""A process's own clock in virtual time: it may be ahead or behind, and may be set."""

from collections.abc import Callable

from ocean.state.clock import Cancel
from ocean.testing.manual_clock import START
from ocean.testing.simulation.processes import Process
from ocean.testing.simulation.virtual_loop import VirtualLoop


class VirtualClock:
    """`call_later` and `every` go by the loop's time, which no setting of the clock changes."""

    def __init__(self, loop: VirtualLoop, process: Process | None = None, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._process = process
        self.ahead_ms = ahead_ms

    def now(self) -> int:
        return START + round(self._loop.time() * 1000) + self.ahead_ms

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        return self._loop.call_later(max(ms, 0) / 1000, then).cancel

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """Beats off the event loop of its process: also while that is blocked, and not while all of it is paused."""
        is_stopped = False

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True

        def again() -> None:
            if not is_stopped:
                beat()
                following()

        def following() -> None:
            context = None if self._process is None else self._process.context(is_off_loop=True)
            self._loop.call_later(ms / 1000, again, context=context)

        following()
        return stop
