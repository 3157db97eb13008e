"""Cron expressions in a time zone: the moments they mean. Pure: the moment to start from is an argument.

The fields are read and the calendar walked by `cronsim`, in local time that knows no zone. What a local time means in
its zone is decided here: most are one moment, those that a clock skips are none, those that it repeats are two.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from ocean import InvalidValue

OnGap = Literal["after", "skip"]
OnRepeat = Literal["first", "second", "both"]

LONGEST = 256
LAST_YEAR = 3_000
"""Nothing comes after it: calendars end, and a list of times has to."""
DAY_S = 86_400
SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
TAKES = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L for the last day, LW for the last weekday, and some month must have it",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT (0 and 7 are Sunday), 1#2 for the second Monday, 5L for the last Friday",
}
HIGHEST = {"second": 59, "minute": 59, "hour": 23, "day-of-month": 31, "month": 12, "day-of-week": 7}
FORM = "five fields (minute hour day-of-month month day-of-week), or six with seconds first, or @daily and the like"
BEFORE_ALL = datetime(2000, 1, 1)  # noqa: DTZ001, local time that knows no zone


@dataclass(frozen=True, slots=True)
class Cron:
    """`on_gap` says what becomes of a local time that is skipped, `on_repeat` of one that comes twice."""

    text: str
    zone: ZoneInfo
    on_gap: OnGap
    on_repeat: OnRepeat

    def after(self, at: int) -> Iterator[int]:
        """Every moment it means after this one, in order; in milliseconds."""
        last = at // 1_000
        for moments in self._in_order(last):
            for moment in moments:
                if moment > last:
                    last = moment
                    yield moment * 1_000

    def _in_order(self, at: int) -> Iterator[list[int]]:
        """The moments of each local time; of a stretch that is repeated, all at once: second passes come last."""
        repeated: set[int] = set()
        for local in CronSim(self.text, self._start(at)):
            if local.year >= LAST_YEAR:
                break
            moments = self._moments(local)
            if self._is_repeated(local):
                repeated.update(moments)
                continue
            yield sorted(repeated)
            yield moments
            repeated.clear()
        yield sorted(repeated)

    def says(self) -> str:
        """The expression in words."""
        return str(CronSim(self.text, BEFORE_ALL).explain())

    def _start(self, at: int) -> datetime:
        """The local time from which to look: earlier, if the clock is set back within a day of it."""
        offset = min(self._offset(at), self._offset(at + DAY_S))
        return datetime.fromtimestamp(at, UTC).replace(tzinfo=None) + offset

    def _moments(self, local: datetime) -> list[int]:
        first, second = self._as_moment(local, fold=0), self._as_moment(local, fold=1)
        if first == second:
            return [first]
        if first > second:
            return [] if self.on_gap == "skip" else [self._gap_end(second, first)]
        return {"first": [first], "second": [second], "both": [first, second]}[self.on_repeat]

    def _is_repeated(self, local: datetime) -> bool:
        return self._as_moment(local, fold=0) < self._as_moment(local, fold=1)

    def _gap_end(self, before: int, after: int) -> int:
        """When the clock was set forward, which is between the two."""
        old = self._offset(before)
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if self._offset(middle) == old else (before, middle)
        return after

    def _as_moment(self, local: datetime, *, fold: int) -> int:
        return int(local.replace(tzinfo=self.zone, fold=fold).timestamp())

    def _offset(self, at: int) -> timedelta:
        offset = datetime.fromtimestamp(at, self.zone).utcoffset()
        assert offset is not None
        return offset


@lru_cache(maxsize=1_024)
def read_cron(text: str, zone: str, on_gap: OnGap | None = None, on_repeat: OnRepeat | None = None) -> Cron:
    """The expression, checked. Without a word on it, the clock's changes are taken as Debian's cron takes them.

    A job at fixed times that falls into a gap runs at its end, and once where it would come twice. One with a star for
    its hour, minute or second goes by the time that passes: it knows no gap, and both passes.
    """
    found = read_zone(zone)
    plain = SHORT.get(text.strip().lower(), text.strip())
    if len(plain) > LONGEST:
        raise InvalidValue(f"cron is longer than {LONGEST} characters")
    fields = plain.split()
    if len(fields) not in (5, 6):
        raise InvalidValue(f"cron {text!r} has {len(fields)} fields; it takes {FORM}")
    try:
        CronSim(plain, BEFORE_ALL)
    except CronSimError as error:
        raise InvalidValue(_what_is_wrong(text, fields, str(error))) from None
    _check_steps(text, fields)
    goes_on = any(field.startswith("*") for field in fields[: len(fields) - 3])
    made = Cron(
        plain,
        found,
        on_gap or ("skip" if goes_on else "after"),
        on_repeat or ("both" if goes_on else "first"),
    )
    if next(iter(CronSim(plain, BEFORE_ALL)), None) is None:
        raise InvalidValue(f"cron {text!r} never comes: no day of fifty years fits all its fields")
    return made


def read_zone(name: str) -> ZoneInfo:
    if name not in _zones():
        near = get_close_matches(name, _zones(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "it is an IANA name, like 'Europe/Lisbon' or 'UTC'"
        raise InvalidValue(f"there is no time zone {name!r}; {hint}")
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _check_steps(text: str, fields: list[str]) -> None:
    """A step beyond its field would be no step at all: whoever writes */90 means something else."""
    for name, field in zip(FIELDS[-len(fields) :], fields, strict=True):
        for step in re.findall(r"/(\d+)", field):
            if int(step) > HIGHEST[name]:
                raise InvalidValue(
                    f"cron {text!r}: the {name} {field!r} has a step of {step}, and begins anew before that; "
                    "an interval (every_ms) goes on over hours and days"
                )


def _what_is_wrong(text: str, fields: list[str], said: str) -> str:
    name = said.removeprefix("Bad ")
    if name not in FIELDS:
        return f"cron {text!r}: {said}; it takes {FORM}"
    value = fields[FIELDS.index(name) - (6 - len(fields))]
    return f"cron {text!r}: the {name} {value!r} is not right; it takes {TAKES[name]}"
