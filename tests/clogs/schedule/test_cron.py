"""Cron expressions in their zones: clocks that skip and repeat, ends of months, and invalid expressions."""

import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clogs.schedule.cron import read_cron
from ocean import InvalidValue
from tests.clogs.schedule.oracle import DAYS, PLACES, Expression, Field, last_day, moments

ROOT = Path(__file__).parents[3]
DAY_MS = 86_400_000


def ms(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1_000


def times(text: str, zone: str, start: str, n: int, **how: Any) -> list[str]:
    found = islice(read_cron(text, zone, **how).after(ms(start, zone)), n)
    return [datetime.fromtimestamp(at / 1_000, ZoneInfo(zone)).strftime("%m-%d %H:%M%z") for at in found]


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        # A fixed time that is skipped happens when the clock jumps.
        ("30 2 * * *", "America/New_York", "2026-03-07", ["03-07 02:30-0500", "03-08 03:00-0400", "03-09 02:30-0400"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["10-04 02:30+1100", "10-05 02:15+1100"]),
        ("0 0 * * *", "America/Santiago", "2026-09-05", ["09-06 01:00-0300", "09-07 00:00-0300"]),
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T10:00", ["12-31 00:00+1400", "12-31 09:00+1400"]),
        # A fixed time that comes twice happens once, the first time.
        ("30 1 * * *", "America/New_York", "2026-11-01", ["11-01 01:30-0400", "11-02 01:30-0500"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", ["04-05 01:45+1100", "04-06 01:45+1030"]),
        # With a star it goes by the time that passes.
        ("*/30 1-3 * * *", "America/New_York", "2026-03-08T01:10",
         ["03-08 01:30-0500", "03-08 03:00-0400", "03-08 03:30-0400"]),
        ("*/30 * * * *", "America/New_York", "2026-11-01T01:10",
         ["11-01 01:30-0400", "11-01 01:00-0500", "11-01 01:30-0500", "11-01 02:00-0500"]),
        ("*/20 5 * * *", "Australia/Lord_Howe", "2026-10-03T23:00",
         ["10-04 05:00+1100", "10-04 05:20+1100", "10-04 05:40+1100", "10-05 05:00+1100"]),
        # No clock changes at all.
        ("30 2 * * *", "Asia/Kolkata", "2026-03-28", ["03-28 02:30+0530", "03-29 02:30+0530"]),
        ("30 2 * * *", "UTC", "2026-03-28", ["03-28 02:30+0000", "03-29 02:30+0000"]),
    ],
)  # fmt: skip
def test_clocks_that_skip_and_repeat(text: str, zone: str, start: str, expected: list[str]) -> None:
    assert times(text, zone, start, len(expected)) == expected


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"on_gap": "skip"}, ["03-07 02:30-0500", "03-09 02:30-0400"]),
        ({"on_gap": "after"}, ["03-07 02:30-0500", "03-08 03:00-0400"]),
    ],
)
def test_on_gap_decides_about_skipped_times(how: dict[str, Any], expected: list[str]) -> None:
    assert times("30 2 * * *", "America/New_York", "2026-03-07", 2, **how) == expected


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"on_repeat": "first"}, ["11-01 01:30-0400", "11-02 01:30-0500"]),
        ({"on_repeat": "second"}, ["11-01 01:30-0500", "11-02 01:30-0500"]),
        ({"on_repeat": "both"}, ["11-01 01:30-0400", "11-01 01:30-0500"]),
    ],
)
def test_on_repeat_decides_about_repeated_times(how: dict[str, Any], expected: list[str]) -> None:
    assert times("30 1 * * *", "America/New_York", "2026-11-01", 2, **how) == expected


def test_several_times_in_one_gap_are_one() -> None:
    assert times("10,20,30 2 * * *", "Europe/Berlin", "2026-03-29", 2) == ["03-29 03:00+0200", "03-30 02:10+0200"]


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("0 0 29 2 *", "2026-01-01", ["02-29", "02-29"]),
        ("0 0 31 * *", "2026-01-31T01:00", ["03-31", "05-31"]),
        ("0 0 L * *", "2028-01-15", ["01-31", "02-29", "03-31", "04-30"]),
        ("0 0 LW * *", "2026-01-01", ["01-30", "02-27", "03-31"]),
        ("0 0 * * MON#2", "2026-01-01", ["01-12", "02-09", "03-09"]),
        ("0 0 * * 5L", "2026-01-01", ["01-30", "02-27", "03-27"]),
        ("0 0 13 * FRI", "2026-02-01", ["02-06", "02-13", "02-20"]),
        ("@monthly", "2026-01-15", ["02-01", "03-01"]),
    ],
)
def test_days_of_the_calendar(text: str, start: str, expected: list[str]) -> None:
    assert [each[:5] for each in times(text, "UTC", start, len(expected))] == expected


def test_a_sixth_field_in_front_is_seconds() -> None:
    found = islice(read_cron("*/20 * * * * *", "UTC").after(10_000), 3)
    assert list(found) == [20_000, 40_000, 60_000]


def test_rare_days_are_found_and_the_search_ends() -> None:
    found = list(read_cron("0 0 * 2 MON#5", "UTC").after(ms("2026-01-01", "UTC")))
    assert datetime.fromtimestamp(found[0] / 1_000, UTC).isoformat() == "2044-02-29T00:00:00+00:00"
    assert datetime.fromtimestamp(found[-1] / 1_000, UTC).year < 3_000


def test_time_zones_work_without_those_of_the_system() -> None:
    program = "from clogs.schedule.cron import read_cron; print(next(read_cron('0 9 * * *', 'Asia/Kolkata').after(0)))"
    alone = os.environ | {"PYTHONTZPATH": ""}
    done = subprocess.run([sys.executable, "-c", program], env=alone, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("12600000\n", "")


def test_times_are_after_the_moment_and_never_at_it() -> None:
    cron = read_cron("0 * * * *", "UTC")
    assert [next(cron.after(at)) for at in (3_599_999, 3_600_000, 3_600_001)] == [3_600_000, 7_200_000, 7_200_000]


@pytest.mark.parametrize(
    ("text", "zone", "message"),
    [
        ("61 * * * *", "UTC", "the minute '61' is invalid; it must be 0-59"),
        ("0 24 * * *", "UTC", "the hour '24' is invalid; it must be 0-23"),
        ("0 * * 0 * *", "UTC", "the day-of-month '0' is invalid"),
        ("*/90 * * * *", "UTC", "must be at most 59, got 90"),
        ("0 0 32 * *", "UTC", "the day-of-month '32' is invalid"),
        ("0 0 31 2 *", "UTC", "some month must have it"),
        ("0 0 * 13 *", "UTC", "the month '13' is invalid; it must be 1-12 or JAN-DEC"),
        ("0 0 * * FRI-SUN", "UTC", "the day-of-week 'FRI-SUN' is invalid"),
        ("0 0 * * MON#6", "UTC", "the day-of-week 'MON#6' is invalid"),
        ("0 0 * *", "UTC", "has 4 fields; it must have five fields"),
        ("", "UTC", "has 0 fields"),
        ("@sometimes", "UTC", "has 1 fields"),
        ("* * */20 * 1L", "UTC", "never matches"),
        ("0 " * 200, "UTC", "at most 256 characters"),
        ("0 0 * * *", "Europe/Zurch", "there is no time zone 'Europe/Zurch'; did you mean 'Europe/Zurich'?"),
        ("0 0 * * *", "../../etc/passwd", "use an IANA name"),
    ],
)
def test_an_invalid_expression_is_refused_with_its_field(text: str, zone: str, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_cron(text, zone)
    assert message in refused.value.message


def of(part: str, numbers: range) -> st.SearchStrategy[Field]:
    """Return a field of any form, with a predicate for the times that it matches."""
    low, high = numbers[0], numbers[-1]

    def listed(chosen: list[int]) -> Field:
        return Field(",".join(map(str, chosen)), lambda local: getattr(local, part) in chosen)

    def stepped(step: int) -> Field:
        return Field(f"*/{step}", lambda local: (getattr(local, part) - low) % step == 0)

    def spanned(ends: list[int]) -> Field:
        first, last = sorted(ends)
        return Field(f"{first}-{last}", lambda local: first <= getattr(local, part) <= last)

    any_of_them = st.integers(low, high)
    return st.one_of(
        st.just(Field("*", lambda local: True)),
        st.lists(any_of_them, min_size=1, max_size=4).map(listed),
        st.integers(2, high).map(stepped),
        st.lists(any_of_them, min_size=2, max_size=2).map(spanned),
    )


DAYS_OF_MONTH = st.one_of(
    of("day", range(1, 29)),
    st.just(Field("L", lambda local: local.day == last_day(local))),
)
WEEKDAYS = st.sampled_from(
    [
        Field("*", lambda local: True),
        Field("MON-FRI", lambda local: local.weekday() < 5),
        Field("0,6", lambda local: local.weekday() >= 5),
        Field("7", lambda local: local.weekday() == 6),
        Field("SUN#1", lambda local: local.weekday() == 6 and local.day <= 7),
        Field("0L", lambda local: local.weekday() == 6 and local.day > last_day(local) - 7),
    ]
)
EXPRESSIONS = st.builds(
    Expression,
    of("minute", range(60)),
    of("hour", range(24)),
    DAYS_OF_MONTH,
    st.just(Field("*", lambda local: True)),
    WEEKDAYS,
)
WINDOWS = st.sampled_from([(zone, day) for zone, days in PLACES.items() for day in days])


@settings(max_examples=60, deadline=None)
@given(
    expression=EXPRESSIONS,
    window=WINDOWS,
    start=st.integers(0, DAYS * 1_440 - 1),
    on_gap=st.sampled_from(["after", "skip", None]),
    on_repeat=st.sampled_from(["first", "second", "both", None]),
)
def test_an_expression_matches_what_a_check_of_every_minute_finds(
    expression: Expression, window: tuple[str, str], start: int, on_gap: Any, on_repeat: Any
) -> None:
    zone, first_day = window
    begin = ms(first_day, "UTC")
    end, after = begin + DAYS * DAY_MS, begin + start * 60_000
    found: list[int] = []
    with suppress(InvalidValue):  # some never come, and are refused
        cron = read_cron(expression.text, zone, on_gap, on_repeat)
        found = list(takewhile(lambda at: at < end, cron.after(after)))
    goes_on = expression.minute.text.startswith("*") or expression.hour.text.startswith("*")
    expected = moments(
        expression,
        zone,
        first_day,
        on_gap or ("skip" if goes_on else "after"),
        on_repeat or ("both" if goes_on else "first"),
    )
    assert found == [at for at in expected if at > after]
