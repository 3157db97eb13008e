"""This host's clock, corrected by what the server says: a host that is an hour wrong acts at the right time."""

from collections.abc import Callable

from ocean.kernel.clock import Cancel, Clock

NOISE_MS = 50
"""An answer is this much on its way: a difference below it says nothing."""


class ServerClock:
    def __init__(self, host: Clock) -> None:
        self._host = host
        self._ahead_ms = 0

    def heard(self, now: int) -> None:
        """The server has just said what time it is."""
        ahead_ms = now - self._host.now()
        if abs(ahead_ms - self._ahead_ms) > NOISE_MS:
            self._ahead_ms = ahead_ms

    def now(self) -> int:
        return self._host.now() + self._ahead_ms

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        return self._host.call_later(ms, then)

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        return self._host.every(ms, beat)
