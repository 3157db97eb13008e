"""Intended times, and which of them fire now. Pure."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clogs.schedule.cron import read_cron
from clogs.schedule.times import MOST_QUEUED, Admitted, Due, Missed, Overlap, Timetable, admit, due

HOUR = 3_600_000
HOURLY = Timetable(read_cron("0 * * * *", "UTC"))
EVERY = Timetable(every_ms=HOUR, anchor_at=10 * HOUR + 5)


def test_an_interval_keeps_its_anchor_whenever_it_is_computed() -> None:
    assert list(islice(EVERY.after(0), 2)) == [5, HOUR + 5]
    assert EVERY.next_after(12 * HOUR) == 12 * HOUR + 5
    assert EVERY.next_after(12 * HOUR + 5) == 13 * HOUR + 5


@pytest.mark.parametrize("plan", [HOURLY, Timetable(every_ms=HOUR)], ids=["cron", "interval"])
def test_a_start_is_inclusive_and_an_end_is_exclusive(plan: Timetable) -> None:
    bounded = Timetable(plan.cron, plan.every_ms, 0, start_at=2 * HOUR, end_at=4 * HOUR)
    assert list(bounded.after(0)) == [2 * HOUR, 3 * HOUR]
    assert bounded.next_after(3 * HOUR) is None


@given(
    every=st.integers(1_000, 10_000_000),
    after=st.integers(0, 10**9),
    span=st.integers(0, 10**9),
    most=st.integers(1, 50),
)
def test_the_newest_times_are_the_last_of_all(every: int, after: int, span: int, most: int) -> None:
    plan = Timetable(every_ms=every, anchor_at=7)
    until = after + span
    first = (after - 7) // every + 1
    everything = range(7 + first * every, until + 1, every)
    assert plan.newest(most, after, until) == list(everything[-most:])
    assert plan.count(30, after, until) == min(len(everything), 30)


def test_the_newest_of_a_year_of_seconds_are_found_at_once() -> None:
    plan = Timetable(read_cron("* * * * * *", "Europe/Berlin"))
    year = 365 * 24 * HOUR
    assert plan.newest(3, 0, year) == [year - 2_000, year - 1_000, year]


@pytest.mark.parametrize(
    ("missed", "now", "expected"),
    [
        ("skip", 3 * HOUR, Due((3 * HOUR,), 3 * HOUR, 2)),
        ("skip", 3 * HOUR + 60_000, Due((3 * HOUR,), 3 * HOUR, 2)),
        ("skip", 3 * HOUR + 60_001, Due((), 3 * HOUR, 3)),
        ("once", 3 * HOUR + 60_001, Due((3 * HOUR,), 3 * HOUR, 2)),
        ("all", 3 * HOUR + 60_001, Due((HOUR, 2 * HOUR, 3 * HOUR), 3 * HOUR, 0)),
        ("all", 6 * HOUR, Due((4 * HOUR, 5 * HOUR, 6 * HOUR), 6 * HOUR, 3)),
        ("all", HOUR - 1, Due((), 0, 0)),
        ("once", HOUR, Due((HOUR,), HOUR, 0)),
        ("once", 5_000 * HOUR, Due((5_000 * HOUR,), 5_000 * HOUR, 999, or_more=True)),
    ],
)
def test_what_was_missed_fires_by_its_policy(missed: Missed, now: int, expected: Due) -> None:
    assert due(HOURLY, missed, 60_000, 3, after=0, now=now) == expected


@pytest.mark.parametrize(
    ("overlap", "is_busy", "queue", "expected"),
    [
        ("allow", True, (), Admitted((5, 6))),
        ("skip", False, (), Admitted((5,), dropped=(6,))),
        ("skip", True, (), Admitted((), dropped=(5, 6))),
        ("queue", False, (), Admitted((5,), (6,))),
        ("queue", True, (3, 4), Admitted((), (3, 4, 5, 6))),
        ("queue", False, (3, 4), Admitted((3,), (4, 5, 6))),
        ("queue", True, tuple(range(MOST_QUEUED - 1)), Admitted((), (*range(MOST_QUEUED - 1), 5), (6,))),
    ],
)
def test_runs_that_overlap(overlap: Overlap, is_busy: bool, queue: tuple[int, ...], expected: Admitted) -> None:
    assert admit(overlap, is_busy=is_busy, queue=queue, times=(5, 6)) == expected
