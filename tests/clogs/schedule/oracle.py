"""A slow model of cron expressions that checks every minute of a few days, independent of the clog."""

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAYS = 3

PLACES = {
    "America/New_York": ("2026-03-07", "2026-10-31"),
    "Europe/Berlin": ("2026-03-28", "2026-10-24"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),
    "America/Santiago": ("2026-04-04", "2026-09-05"),
    "Africa/Cairo": ("2026-04-23", "2026-10-29"),
    "Antarctica/Troll": ("2026-03-28", "2026-10-24"),
    "Pacific/Apia": ("2011-12-29",),
    "Asia/Kolkata": ("2026-02-28",),
    "UTC": ("2028-02-28",),
}
"""Zones with days before a clock change: by an hour, half an hour, two hours, a day, at midnight, or none."""


@dataclass(frozen=True)
class Field:
    text: str
    fits: Callable[[datetime], bool]


@dataclass(frozen=True)
class Expression:
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(field.text for field in (self.minute, self.hour, self.day, self.month, self.weekday))

    def fits(self, local: datetime) -> bool:
        if not (self.minute.fits(local) and self.hour.fits(local) and self.month.fits(local)):
            return False
        is_both = self.day.text.startswith("*") or self.weekday.text.startswith("*")
        days = (self.day.fits(local), self.weekday.fits(local))
        return all(days) if is_both else any(days)


@cache
def minutes_of(zone: str, first_day: str) -> list[tuple[int, datetime]]:
    """Yield each minute with its local time."""
    where = ZoneInfo(zone)
    begin = datetime.fromisoformat(first_day).replace(tzinfo=UTC)
    passing = [begin + MINUTE * n for n in range(DAYS * 1_440)]
    return [(int(at.timestamp()) * 1_000, at.astimezone(where).replace(tzinfo=None, fold=0)) for at in passing]


@cache
def skipped_minutes(zone: str, first_day: str) -> list[tuple[int, datetime]]:
    """Yield each local minute that the clock skips, with the moment of the jump."""
    found = []
    shown = minutes_of(zone, first_day)
    for (_, before), (at, after) in pairwise(shown):
        missing = before + MINUTE
        while missing < after:
            found.append((at, missing))
            missing += MINUTE
    return found


def moments(expression: Expression, zone: str, first_day: str, on_gap: str, on_repeat: str) -> list[int]:
    by_local: dict[datetime, list[int]] = {}
    for at, local in minutes_of(zone, first_day):
        if expression.fits(local):
            by_local.setdefault(local, []).append(at)
    kept = {"first": slice(0, 1), "second": slice(-1, None), "both": slice(None)}[on_repeat]
    fires = {at for passes in by_local.values() for at in passes[kept]}
    if on_gap == "after":
        fires |= {at for at, missing in skipped_minutes(zone, first_day) if expression.fits(missing)}
    return sorted(fires)


def last_day(local: datetime) -> int:
    return calendar.monthrange(local.year, local.month)[1]
