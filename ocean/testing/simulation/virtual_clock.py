"""The clock of one process in virtual time. It may be ahead or behind, and may be set."""

from collections.abc import Callable

from ocean.state.clock import Cancel
from ocean.testing.manual_clock import START
from ocean.testing.simulation.processes import Process
from ocean.testing.simulation.virtual_loop import VirtualLoop


class VirtualClock:
    """A clock in virtual time. `call_later` and `every` use the loop's time, not the time that is set."""

    def __init__(self, loop: VirtualLoop, process: Process | None = None, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._process = process
        self.ahead_ms = ahead_ms

    def now(self) -> int:
        """Return the time of this clock."""
        return START + round(self._loop.time() * 1000) + self.ahead_ms

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        """Call `then` after `ms`; return a function that cancels it."""
        return self._loop.call_later(max(ms, 0) / 1000, then).cancel

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """Call `beat` every `ms`, as from a thread: also while the event loop is blocked, not while all is paused."""
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
