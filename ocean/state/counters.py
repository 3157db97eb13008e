"""Counters: whether a take is granted, and the counter after it. Pure, in whole numbers.

There are three kinds. A *total* only grows; its limit is a permanent cap. A *steady* counter is a bucket of `limit`
tokens that refills evenly, `limit` in every `per_ms`. A counter that refills *at once* gets its whole quota back at
the multiples of `per_ms` since 1970 UTC.

A steady counter stores what it owes in units: a token has `per_ms` of them, and `limit` of them are paid back in every
millisecond, so both are whole numbers at any rate. If time runs backwards, nothing is paid back: instances with
different clocks share counters.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never

from ocean.state.errors import InvalidValue
from ocean.state.values import checked_id, shown

MOST = 2**53
MOST_UNITS = 2**60
MOST_OWED = 2**62
"""Well below the largest integer of a database."""

Refill = Literal["steady", "at_once"]


class CounterKind(StrEnum):
    TOTAL = "total"
    STEADY = "steady"
    AT_ONCE = "at_once"


@dataclass(frozen=True, slots=True)
class Take:
    """A take from a counter. `n=0` returns the result of a take of one, and takes nothing."""

    key: str
    n: int = 1
    limit: int | None = None
    per_ms: int | None = None
    refill: Refill = "steady"

    @property
    def kind(self) -> CounterKind:
        """How the counter refills."""
        return CounterKind.TOTAL if self.per_ms is None else CounterKind(self.refill)

    @property
    def asked(self) -> int:
        """How much must be free: at least one, also for `n=0`."""
        return max(self.n, 1)


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a take; true if it was granted.

    `used` and `left` are the counter's after it; `limit` and `left` are None without a limit. `retry_after_ms` is when
    the same take would be granted if nothing else is taken: 0 if it was granted, None for never.
    """

    ok: bool
    used: int
    limit: int | None
    left: int | None
    retry_after_ms: int | None

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class Counter:
    """A stored counter. `used` is what was taken; for a steady one, the units owed at `at`, at the rate of that time.

    `at` is the time of the last take, by the most advanced of the clocks.
    """

    kind: CounterKind
    used: int
    at: int
    per_ms: int | None = None
    rate: int | None = None

    @property
    def expires_at(self) -> int | None:
        """From then on the counter is equivalent to none."""
        match self.kind:
            case CounterKind.TOTAL:
                return None
            case CounterKind.STEADY:
                return self.at + _ceil(self.used, self.rate or 1)
            case CounterKind.AT_ONCE:
                return _next_multiple(self.at, self.per_ms or 1)
            case _:
                assert_never(self.kind)

    def is_over(self, now: int) -> bool:
        """Return whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now


def checked_take(
    key: str, n: int = 1, *, limit: int | None = None, per_ms: int | None = None, refill: Refill = "steady"
) -> Take:
    """Check a take: the limits of its numbers, and which of them belong together."""
    checked_id(key, "a counter's key")
    _checked(n, "n", 0)
    if refill not in ("steady", "at_once"):
        raise InvalidValue(f"refill must be 'steady' or 'at_once', got {shown(refill)}")
    if limit is not None and n > _checked(limit, "limit", 1):
        raise InvalidValue(f"n must be at most the limit of {key!r}, {limit}, got {n}")
    if per_ms is None and refill != "steady":
        raise InvalidValue(f"refill={refill!r} needs per_ms: after how long {key!r} has its quota back")
    if per_ms is not None:
        _checked(per_ms, "per_ms", 1)
        if limit is None:
            raise InvalidValue(f"per_ms needs a limit: how much of {key!r} there is in {per_ms} ms")
        if refill == "steady" and limit * per_ms > MOST_UNITS:
            raise InvalidValue(
                f"limit × per_ms of {key!r} must be at most {MOST_UNITS}, got {limit * per_ms}; use coarser units"
            )
    return Take(key, n, limit, per_ms, refill)


def _checked(value: int, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InvalidValue(f"{what} must be an integer of at least {least}, got {shown(value)}")
    return value


def decide(counter: Counter | None, take: Take, now: int) -> tuple[Taken, Counter | None]:
    """Return the result of a take, and the counter after it: the same one if nothing was taken."""
    current = _current(counter, take, now)
    match take.kind:
        case CounterKind.TOTAL:
            taken, following = _of_total(current, take, now)
        case CounterKind.STEADY:
            taken, following = _of_steady(current, take, now)
        case CounterKind.AT_ONCE:
            taken, following = _of_quota(current, take, now)
        case _:
            assert_never(take.kind)
    return taken, following if taken.ok and take.n else counter


def reserve(counter: Counter | None, take: Take, now: int) -> tuple[int, Counter]:
    """Take tokens of a steady counter that may be free only later. Returns when they are, and the counter after it."""
    limit, per_ms = take.limit or 1, take.per_ms or 1
    current = _current(counter, take, now)
    at, owed = _owed(current, per_ms, now)
    following = Counter(CounterKind.STEADY, owed + take.n * per_ms, at, per_ms, limit)
    if following.used > MOST_OWED:
        raise InvalidValue(f"rate {take.key!r} is reserved too far ahead; reset_counter frees it")
    wait = _ceil(following.used - limit * per_ms, limit)
    return at + wait if wait > 0 else now, following


def _current(counter: Counter | None, take: Take, now: int) -> Counter | None:
    if counter is None or counter.is_over(now):
        return None
    if counter.kind is not take.kind:
        raise InvalidValue(
            f"counter {take.key!r} is of kind {counter.kind!s} and must be taken from as such, got {take.kind!s}: "
            "use another key, or reset_counter"
        )
    return counter


def _of_total(counter: Counter | None, take: Take, now: int) -> tuple[Taken, Counter]:
    used = counter.used if counter else 0
    if take.limit is not None and used + take.asked > take.limit:
        return _refused(used, take, None), Counter(CounterKind.TOTAL, used, now)
    if used + take.n > MOST:
        raise InvalidValue(f"counter {take.key!r} must not exceed {MOST}; reset_counter starts it again")
    used += take.n
    left = None if take.limit is None else take.limit - used
    return Taken(True, used, take.limit, left, 0), Counter(CounterKind.TOTAL, used, now)


def _of_steady(counter: Counter | None, take: Take, now: int) -> tuple[Taken, Counter]:
    limit, per_ms = take.limit or 1, take.per_ms or 1
    at, owed = _owed(counter, per_ms, now)
    free = (limit - take.asked) * per_ms
    if counter is not None and owed > free:
        # Until something is taken at the new rate, the old rate pays back.
        fits_at = counter.at + _ceil(counter.used - free * (counter.per_ms or 1) // per_ms, counter.rate or 1)
        return _refused(_ceil(owed, per_ms), take, fits_at - now), counter
    following = Counter(CounterKind.STEADY, owed + take.n * per_ms, at, per_ms, limit)
    used = _ceil(following.used, per_ms)
    return Taken(True, used, limit, limit - used, 0), following


def _owed(counter: Counter | None, per_ms: int, now: int) -> tuple[int, int]:
    """Return the time and the units owed at that time, in units of `per_ms` per token."""
    if counter is None:
        return now, 0
    paid_back = max(now - counter.at, 0) * (counter.rate or 1)
    owed = max(counter.used - paid_back, 0)
    return max(now, counter.at), _ceil(owed * per_ms, counter.per_ms or 1)


def _of_quota(counter: Counter | None, take: Take, now: int) -> tuple[Taken, Counter]:
    limit, per_ms = take.limit or 1, take.per_ms or 1
    at = max(now, counter.at) if counter else now
    used = counter.used if counter and counter.at // per_ms == at // per_ms else 0
    if used + take.asked > limit:
        back_at = min(_next_multiple(at, per_ms), counter.expires_at or 0 if counter else 0)
        return _refused(used, take, back_at - now), Counter(CounterKind.AT_ONCE, used, at, per_ms)
    used += take.n
    return Taken(True, used, limit, limit - used, 0), Counter(CounterKind.AT_ONCE, used, at, per_ms)


def _refused(used: int, take: Take, retry_after_ms: int | None) -> Taken:
    return Taken(False, used, take.limit, max((take.limit or 0) - used, 0), retry_after_ms)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _next_multiple(at: int, per_ms: int) -> int:
    return (at // per_ms + 1) * per_ms
