"""This host's clock, corrected by what the server says: a host that is an hour wrong acts at the right time."""

from collections.abc import Callable

from ocean.state.clock import Cancel, Clock


class ServerClock:
    def __init__(self, host: Clock) -> None:
        self._host = host
        self._ahead_ms = 0

    def observe(self, now: int, asked_at: int) -> None:
        """The server has said what time it is. It was so at some moment between the question and this answer, and no
        more is known: an answer that was long on its way corrects little."""
        least, most = now - self._host.now(), now - asked_at
        self._ahead_ms = max(least, min(self._ahead_ms, most))

    def now(self) -> int:
        return self._host.now() + self._ahead_ms

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        return self._host.call_later(ms, then)

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        return self._host.every(ms, beat)
