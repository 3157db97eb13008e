"""This host's clock, corrected by the server's time: a host whose clock is an hour wrong acts at the right time."""

from collections.abc import Callable

from ocean.state.clock import Cancel, Clock


class ServerClock:
    """A `Clock` that shows the server's time."""

    def __init__(self, host: Clock) -> None:
        self._host = host
        self._ahead_ms = 0

    def observe(self, now: int, asked_at: int) -> None:
        """Correct the clock: the server's time was `now` at some moment between `asked_at` and this call.

        The longer the round trip took, the less it corrects.
        """
        least, most = now - self._host.now(), now - asked_at
        self._ahead_ms = max(least, min(self._ahead_ms, most))

    def now(self) -> int:
        return self._host.now() + self._ahead_ms

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        return self._host.call_later(ms, then)

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        return self._host.every(ms, beat)
