"""Which source of pokes has stopped, as a table, and the message for the operator."""

from collections.abc import Sequence
from typing import Any

import pytest

from ocean.kernel.metrics import Pokes
from ocean.kernel.poke_sources import SOURCES, checked_source, sources_seen, why_due_work_waits
from ocean.state.errors import InvalidValue

NOW = 1_000_000
LIMIT_MS = 60_000


def poked(*ages_ms: int, under_way: bool = False) -> Pokes:
    """Return pokes that began this long ago."""
    pokes = Pokes()
    for age_ms in sorted(ages_ms, reverse=True):
        pokes.begin(NOW - age_ms)
        pokes.end()
    pokes.under_way = int(under_way)
    return pokes


def every(gap_ms: int, last_ms_ago: int, count: int = 10) -> Pokes:
    return poked(*(last_ms_ago + gap_ms * number for number in range(count)))


@pytest.mark.parametrize(
    ("pokes", "due_for_ms", "is_quiet"),
    [
        pytest.param(every(1_000, 70_000), 70_000, True, id="usually each second, silent since the work fell due"),
        pytest.param(every(1_000, 70_000), 60_000, False, id="the work is only as old as the limit"),
        pytest.param(every(1_000, 900_000), 61_000, True, id="silent for long, and due for longer than the limit"),
        pytest.param(every(1_000, 60_000), 500_000, False, id="poked just within the limit"),
        pytest.param(every(60_000, 100_000), 100_000, False, id="a cron each minute that is late once"),
        pytest.param(every(60_000, 181_000), 500_000, True, id="a cron each minute that missed three"),
        pytest.param(every(60_000, 180_000), 500_000, False, id="three of its gaps are not yet much longer"),
        pytest.param(poked(70_000), 70_000, True, id="poked once and never again"),
        pytest.param(poked(5), 70_000, False, id="poked once, just now"),
        pytest.param(poked(*range(70_000, 80_000, 1_000), 30_000_000), 70_000, True, id="a night between is no habit"),
        pytest.param(poked(70_000, 71_000, under_way=True), 70_000, False, id="still at its last poke"),
        pytest.param(every(1_000, -500), 70_000, False, id="a clock that was set back"),
    ],
)
def test_a_source_is_quiet_when_it_is_silent_for_too_long_while_work_is_due(
    pokes: Pokes, due_for_ms: int, is_quiet: bool
) -> None:
    (seen,) = sources_seen({"ticker": pokes}, NOW, due_for_ms, LIMIT_MS)
    assert (seen.source, seen.pokes, seen.is_quiet) == ("ticker", pokes.count, is_quiet)


def test_the_record_of_a_source() -> None:
    pokes = {"http": every(300, 40), "ticker": poked(7)}
    ticker, http = sources_seen(pokes, NOW, 0, LIMIT_MS)  # type: ignore[arg-type]
    assert (ticker.source, ticker.last_poke_at, ticker.usual_gap_ms, ticker.under_way) == ("ticker", NOW - 7, None, 0)
    assert (http.source, http.last_poke_at, http.usual_gap_ms, http.pokes) == ("http", NOW - 40, 300, 10)


def test_the_usual_gap_is_that_of_the_last_pokes() -> None:
    pokes = every(1_000, 0, count=50)
    for _ in range(5):
        pokes.begin(pokes.last_at + 10)
    assert pokes.usual_gap_ms == 10


@pytest.mark.parametrize(
    ("pokes", "reason"),
    [
        ({}, "no poke has reached this process: start a ticker, a cron job or a client that pokes it"),
        (
            {"ticker": every(500, 70_000), "request": every(2_000, 5)},
            "stopped poking: ticker (last poke 70000 ms ago, usually every 500 ms)",
        ),
        (
            {"http": poked(70_000), "ticker": every(500, 70_000)},
            "stopped poking: ticker (last poke 70000 ms ago, usually every 500 ms), "
            "http (last poke 70000 ms ago, its only one)",
        ),
        (
            {"ticker": poked(70_000, 71_000, under_way=True), "http": every(9, 5)},
            "still running: ticker (last poke 70000 ms ago, usually every 1000 ms)",
        ),
        (
            {"http": every(300_000, 65_000)},
            "pokes arrive, but too few or too short: http (last poke 65000 ms ago, usually every 300000 ms)",
        ),
    ],
)
def test_the_reason_why_due_work_waits(pokes: Any, reason: str) -> None:
    assert why_due_work_waits(sources_seen(pokes, NOW, 70_000, LIMIT_MS), NOW) == reason


def test_a_source_is_one_of_those_known() -> None:
    assert [checked_source(source) for source in SOURCES] == [*SOURCES]
    unknown: Sequence[Any] = ("cron", "", None, 1)
    for source in unknown:
        with pytest.raises(InvalidValue, match="source must be one of ticker, http"):
            checked_source(source)


def test_a_clock_that_was_set_back_makes_no_negative_gap_or_age() -> None:
    pokes = Pokes()
    for at in (NOW + 9_000, NOW + 5_000):
        pokes.begin(at)
        pokes.end()
    assert pokes.usual_gap_ms == 0
    seen = sources_seen({"ticker": pokes}, NOW, 70_000, LIMIT_MS)
    assert "last poke 0 ms ago, usually every 0 ms" in why_due_work_waits(seen, NOW)
