"""How a host corrects its clock by the server's time."""

import pytest

from ocean.stores.postgres.client.server_clock import ServerClock
from ocean.testing import ManualClock

HOUR_MS = 3_600_000


def observe(clock: ManualClock, server: ServerClock, by_ms: int, takes_ms: int) -> None:
    """A round trip to a server whose clock is ahead by `by_ms`; half of its time is the way back."""
    asked_at = clock.now()
    clock.advance(takes_ms)
    server.observe(clock.now() - takes_ms // 2 + by_ms, asked_at)


@pytest.mark.parametrize("by_ms", [-HOUR_MS, 0, 7, HOUR_MS])
def test_a_host_is_corrected_to_within_the_time_of_a_round_trip(by_ms: int) -> None:
    clock = ManualClock()
    server = ServerClock(clock)
    observe(clock, server, by_ms, 10)
    assert abs(server.now() - clock.now() - by_ms) <= 10


def test_a_slow_round_trip_does_not_worsen_the_correction() -> None:
    clock = ManualClock()
    server = ServerClock(clock)
    observe(clock, server, HOUR_MS, 2)
    known = server.now() - clock.now()
    observe(clock, server, HOUR_MS, 20_000)
    assert server.now() - clock.now() == known


def test_a_corrected_host_clock_is_noticed_with_the_next_result() -> None:
    clock = ManualClock()
    server = ServerClock(clock)
    observe(clock, server, HOUR_MS, 2)
    observe(clock, server, 0, 2)
    assert abs(server.now() - clock.now()) <= 2
