"""Cron expressions in a time zone, and the moments they match. Pure: the moment to start from is an argument.

`cronsim` parses the fields and walks the calendar in local time without a zone. This module maps a local time to
moments in its zone: usually one, none for a time that the clock skips, two for a time that the clock repeats.
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
"""No time is returned after this year, so that a list of times ends."""
DAY_S = 86_400
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
ALLOWED_VALUES = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L for the last day, LW for the last weekday, and some month must have it",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT (0 and 7 are Sunday), 1#2 for the second Monday, 5L for the last Friday",
}
HIGHEST = {"second": 59, "minute": 59, "hour": 23, "day-of-month": 31, "month": 12, "day-of-week": 7}
FORM = "five fields (minute hour day-of-month month day-of-week), or six with seconds first, or @daily and the like"
BEFORE_ALL = datetime(2000, 1, 1)  # noqa: DTZ001, local time without a zone


@dataclass(frozen=True, slots=True)
class Cron:
    """`on_gap` decides about a local time that the clock skips, `on_repeat` about one that it repeats."""

    text: str
    zone: ZoneInfo
    on_gap: OnGap
    on_repeat: OnRepeat

    def after(self, at: int) -> Iterator[int]:
        """Yield every matching moment after this one, in order, in milliseconds."""
        last = at // 1_000
        for moments in self._in_order(last):
            for moment in moments:
                if moment > last:
                    last = moment
                    yield moment * 1_000

    def _in_order(self, at: int) -> Iterator[list[int]]:
        """Yield the moments of each local time; those of a repeated hour together, so that they can be sorted."""
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

    def in_words(self) -> str:
        """Return the expression in words."""
        return str(CronSim(self.text, BEFORE_ALL).explain())

    def _start(self, at: int) -> datetime:
        """Return the local time to start from: earlier if the clock is set back within a day."""
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
        """Return the moment between the two at which the clock is set forward."""
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
    """Parse and check an expression. By default clock changes are handled as Debian's cron handles them.

    A job at fixed times fires at the end of a gap, and once for a repeated time. A job with a star for its hour, minute
    or second follows elapsed time: it skips the gap and fires in both passes of a repeated hour.
    """
    found = read_zone(zone)
    plain = ALIASES.get(text.strip().lower(), text.strip())
    if len(plain) > LONGEST:
        raise InvalidValue(f"cron must have at most {LONGEST} characters, got {len(plain)}")
    fields = plain.split()
    if len(fields) not in (5, 6):
        raise InvalidValue(f"cron {text!r} has {len(fields)} fields; it must have {FORM}")
    try:
        CronSim(plain, BEFORE_ALL)
    except CronSimError as error:
        raise InvalidValue(_what_is_wrong(text, fields, str(error))) from None
    _check_steps(text, fields)
    follows_elapsed_time = any(field.startswith("*") for field in fields[: len(fields) - 3])
    made = Cron(
        plain,
        found,
        on_gap or ("skip" if follows_elapsed_time else "after"),
        on_repeat or ("both" if follows_elapsed_time else "first"),
    )
    if next(iter(CronSim(plain, BEFORE_ALL)), None) is None:
        raise InvalidValue(f"cron {text!r} never matches: no day within fifty years fits all its fields")
    return made


def read_zone(name: str) -> ZoneInfo:
    if name not in _zones():
        near = get_close_matches(name, _zones(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "use an IANA name, like 'Europe/Lisbon' or 'UTC'"
        raise InvalidValue(f"there is no time zone {name!r}; {hint}")
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _check_steps(text: str, fields: list[str]) -> None:
    """Refuse a step that is larger than its field: `*/90` minutes would match only minute 0."""
    for name, field in zip(FIELDS[-len(fields) :], fields, strict=True):
        for step in re.findall(r"/(\d+)", field):
            if int(step) > HIGHEST[name]:
                raise InvalidValue(
                    f"cron {text!r}: the step of the {name} {field!r} must be at most {HIGHEST[name]}, got {step}; "
                    "use every_ms for a longer interval"
                )


def _what_is_wrong(text: str, fields: list[str], error: str) -> str:
    name = error.removeprefix("Bad ")
    if name not in FIELDS:
        return f"cron {text!r}: {error}; it must have {FORM}"
    value = fields[FIELDS.index(name) - (6 - len(fields))]
    return f"cron {text!r}: the {name} {value!r} is invalid; it must be {ALLOWED_VALUES[name]}"
