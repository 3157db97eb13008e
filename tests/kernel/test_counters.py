"""Counters: caps, buckets, cooldowns, quotas, and clocks that differ."""

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ocean.state.counters import MOST, MOST_UNITS, Counter, CounterKind, Take, Taken, checked_take, decide, reserve
from ocean.state.errors import InvalidValue

NOW = 1_700_000_000_000
DAY = 86_400_000
MIDNIGHT = NOW // DAY * DAY


class Shelf:
    """One counter in memory, kept as a store keeps its row."""

    def __init__(self) -> None:
        self.counter: Counter | None = None

    def take(self, now: int, n: int = 1, **options: Any) -> Taken:
        taken, self.counter = decide(self.counter, checked_take("k", n, **options), now)
        return taken


def test_a_total_without_a_limit_only_counts() -> None:
    shelf = Shelf()
    assert shelf.take(NOW, 5) == Taken(True, 5, None, None, 0)
    assert shelf.take(NOW, 2) == Taken(True, 7, None, None, 0)


def test_a_cap_gives_what_it_has_and_then_never_again() -> None:
    shelf = Shelf()
    results = [shelf.take(NOW + i * DAY, limit=3) for i in range(5)]
    assert [taken.left for taken in results] == [2, 1, 0, 0, 0]
    assert results[2:4] == [Taken(True, 3, 3, 0, 0), Taken(False, 3, 3, 0, None)]
    assert [bool(taken) for taken in results] == [True, True, True, False, False]


def test_a_refused_take_takes_nothing_not_even_what_would_fit() -> None:
    shelf = Shelf()
    shelf.take(NOW, 2, limit=3)
    before = shelf.counter
    assert shelf.take(NOW, 2, limit=3) == Taken(False, 2, 3, 1, None)
    assert shelf.counter is before
    assert shelf.take(NOW, 1, limit=3).ok


@pytest.mark.parametrize("rule", [{}, {"per_ms": 1_000}, {"per_ms": 1_000, "refill": "at_once"}])
def test_a_peek_returns_what_a_take_of_one_would_and_takes_nothing(rule: dict[str, Any]) -> None:
    shelf = Shelf()
    assert shelf.take(MIDNIGHT, 0, limit=2, **rule) == Taken(True, 0, 2, 2, 0)
    assert shelf.counter is None
    shelf.take(MIDNIGHT, 2, limit=2, **rule)
    before = shelf.counter
    peeked, taken = shelf.take(MIDNIGHT, 0, limit=2, **rule), shelf.take(MIDNIGHT, 1, limit=2, **rule)
    assert peeked == taken
    assert not peeked
    assert (peeked.used, peeked.left) == (2, 0)
    assert shelf.counter is before


def test_a_bucket_refills_evenly() -> None:
    shelf = Shelf()
    assert shelf.take(NOW, 10, limit=10, per_ms=1_000).left == 0
    assert shelf.take(NOW, limit=10, per_ms=1_000).retry_after_ms == 100
    assert not shelf.take(NOW + 99, limit=10, per_ms=1_000)
    assert shelf.take(NOW + 100, limit=10, per_ms=1_000) == Taken(True, 10, 10, 0, 0)
    assert shelf.take(NOW + 350, 2, limit=10, per_ms=1_000) == Taken(True, 10, 10, 0, 0)
    assert shelf.take(NOW + 400, limit=10, per_ms=1_000).ok, "the earlier half token was not lost"


def test_a_bucket_of_one_is_a_cooldown() -> None:
    shelf = Shelf()
    assert shelf.take(NOW, limit=1, per_ms=60_000)
    assert shelf.take(NOW + 1, limit=1, per_ms=60_000).retry_after_ms == 59_999
    assert not shelf.take(NOW + 59_999, limit=1, per_ms=60_000)
    assert shelf.take(NOW + 60_000, limit=1, per_ms=60_000)


def test_a_rate_that_does_not_divide_loses_nothing() -> None:
    shelf = Shelf()
    shelf.take(NOW, 3, limit=3, per_ms=1_000)
    granted = [now for now in range(NOW, NOW + 10_001) if shelf.take(now, limit=3, per_ms=1_000)]
    assert len(granted) == 30
    assert [now - NOW for now in granted[:4]] == [334, 667, 1_000, 1_334]


def test_a_daily_quota_comes_back_whole_at_midnight_utc() -> None:
    daily: dict[str, Any] = {"limit": 2, "per_ms": DAY, "refill": "at_once"}
    shelf = Shelf()
    late = MIDNIGHT + DAY - 5
    assert shelf.take(late, 2, **daily)
    assert shelf.take(late + 1, **daily) == Taken(False, 2, 2, 0, 4)
    assert shelf.take(MIDNIGHT + DAY, 2, **daily) == Taken(True, 2, 2, 0, 0)
    assert shelf.counter is not None
    assert shelf.counter.expires_at == MIDNIGHT + 2 * DAY


def test_a_clock_set_back_pays_nothing_back_twice() -> None:
    shelf = Shelf()
    for skew in (0, -5_000, 0, -5_000, 0, -5_000):
        shelf.take(NOW + skew, limit=2, per_ms=10_000)
    assert shelf.take(NOW, limit=2, per_ms=10_000) == Taken(False, 2, 2, 0, 5_000)
    assert shelf.take(NOW - 5_000, limit=2, per_ms=10_000).retry_after_ms == 10_000
    assert shelf.take(NOW + 5_000, limit=2, per_ms=10_000)


def test_a_clock_set_back_over_midnight_does_not_bring_the_quota_back() -> None:
    daily: dict[str, Any] = {"limit": 2, "per_ms": DAY, "refill": "at_once"}
    shelf = Shelf()
    assert shelf.take(MIDNIGHT + 10, 2, **daily)
    assert shelf.take(MIDNIGHT - 10, **daily).retry_after_ms == DAY + 10
    assert not shelf.take(MIDNIGHT + 10, **daily)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"limit": 5}, {"limit": 5, "per_ms": 1_000}),
        ({"limit": 5, "per_ms": 1_000}, {"limit": 5, "per_ms": 1_000, "refill": "at_once"}),
        ({"limit": 5, "per_ms": 1_000, "refill": "at_once"}, {}),
    ],
)
def test_a_counter_keeps_its_kind_until_it_is_worth_nothing(first: dict[str, Any], second: dict[str, Any]) -> None:
    shelf = Shelf()
    shelf.take(MIDNIGHT, **first)
    with pytest.raises(
        InvalidValue, match=r"'k' is of kind \w+ and must be taken from as such, got \w+: .* reset_counter"
    ):
        shelf.take(MIDNIGHT + 1, **second)
    if "per_ms" in first:
        assert shelf.take(MIDNIGHT + 1_000, **second)


def test_a_new_limit_of_a_cap_counts_what_was_taken_before() -> None:
    shelf = Shelf()
    shelf.take(NOW, 5, limit=5)
    assert shelf.take(NOW, 3, limit=10) == Taken(True, 8, 10, 2, 0)
    assert shelf.take(NOW, limit=4) == Taken(False, 8, 4, 0, None)


def test_a_new_rate_keeps_the_tokens_owed_and_pays_back_by_the_old_until_it_gives() -> None:
    shelf = Shelf()
    shelf.take(NOW, 10, limit=10, per_ms=1_000)
    assert shelf.take(NOW, limit=10, per_ms=60_000) == Taken(False, 10, 10, 0, 100)
    assert shelf.take(NOW + 100, limit=10, per_ms=60_000).ok
    assert shelf.take(NOW + 200, limit=10, per_ms=60_000).retry_after_ms == 5_900
    assert shelf.take(NOW + 200, limit=20, per_ms=60_000) == Taken(True, 11, 20, 9, 0)


def test_a_part_of_a_token_that_is_owed_stays_owed_in_coarser_units() -> None:
    shelf = Shelf()
    shelf.take(NOW, limit=1, per_ms=3)
    assert shelf.take(NOW + 1, limit=1, per_ms=1) == Taken(False, 1, 1, 0, 2)
    assert shelf.take(NOW + 3, limit=1, per_ms=1)


def test_a_new_length_of_a_quota_counts_the_last_window_while_both_last() -> None:
    hour = 3_600_000
    shelf = Shelf()
    shelf.take(MIDNIGHT + 10, 9, limit=10, per_ms=DAY, refill="at_once")
    assert shelf.take(MIDNIGHT + 20, limit=5, per_ms=hour, refill="at_once") == Taken(False, 9, 5, 0, hour - 20)
    assert shelf.take(MIDNIGHT + hour, 5, limit=5, per_ms=hour, refill="at_once").ok
    assert shelf.take(MIDNIGHT + hour + 1, 1, limit=5, per_ms=DAY, refill="at_once").retry_after_ms == hour - 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an empty key": ({"key": ""}, "a counter's key must be a non-empty string"),
    "a negative n": ({"n": -1}, "n must be an integer of at least 0, got -1"),
    "a fraction": ({"n": 1.5}, "n must be an integer"),
    "n as a boolean": ({"n": True}, "n must be an integer"),
    "n beyond bounds": ({"n": MOST + 1}, "n must be an integer"),
    "a limit of zero": ({"limit": 0}, "limit must be an integer of at least 1, got 0"),
    "more than there can be": ({"n": 4, "limit": 3}, "n must be at most the limit of 'k', 3, got 4"),
    "a time without a limit": ({"per_ms": 1_000}, "per_ms needs a limit"),
    "a time of zero": ({"limit": 1, "per_ms": 0}, "per_ms must be an integer of at least 1"),
    "a quota without a time": ({"limit": 1, "refill": "at_once"}, "refill='at_once' needs per_ms"),
    "another refill": ({"limit": 1, "per_ms": 1, "refill": "slowly"}, "refill must be 'steady' or 'at_once'"),
    "units beyond 64 bits": ({"limit": 2**30, "per_ms": 2**31}, "use coarser units"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_take_is_refused_with_a_message(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message.replace("(", r"\(")):
        checked_take(**{"key": "k"} | options)


def test_a_total_does_not_grow_beyond_what_json_can_represent() -> None:
    shelf = Shelf()
    shelf.take(NOW, MOST)
    with pytest.raises(InvalidValue, match="reset_counter starts it again"):
        shelf.take(NOW, 1)


rates = st.tuples(st.integers(1, 20), st.integers(1, 400))
moves = st.lists(st.tuples(st.integers(-50, 300), st.integers(0, 6)), max_size=40)


@given(rates, moves)
def test_a_bucket_agrees_with_exact_fractions(rate: tuple[int, int], steps: list[tuple[int, int]]) -> None:
    limit, per_ms = rate
    shelf, now, since, left_then = Shelf(), NOW, NOW, Fraction(limit)
    for step, n in steps:
        now += step
        n = min(n, limit)
        tokens = min(Fraction(limit), left_then + Fraction(max(now - since, 0) * limit, per_ms))
        taken = shelf.take(now, n, limit=limit, per_ms=per_ms)
        assert taken.ok == (max(n, 1) <= tokens)
        if taken and n:
            # A full bucket has no history: only one that misses tokens keeps the latest clock time.
            since, left_then = now if tokens == limit else max(now, since), tokens - n
            tokens = left_then
        assert taken.left == math.floor(tokens)


@given(rates, moves)
@example((1, 1), [(0, 1), (0, 1), (1, 1)])
def test_no_window_gives_more_than_the_limit_and_what_refills_in_it(
    rate: tuple[int, int], steps: list[tuple[int, int]]
) -> None:
    limit, per_ms = rate
    shelf, now, grants = Shelf(), NOW, []
    for step, n in steps:
        now += abs(step)
        if shelf.take(now, min(n, limit), limit=limit, per_ms=per_ms):
            grants.append((now, min(n, limit)))
    for first, (begins, _) in enumerate(grants):
        for last in range(first, len(grants)):
            ends = grants[last][0]
            given_out = sum(n for _, n in grants[first : last + 1])
            assert given_out <= limit + Fraction((ends - begins) * limit, per_ms)


@given(rates, moves, st.sampled_from(["steady", "at_once"]))
def test_a_refused_take_reports_exactly_when_to_try_again(
    rate: tuple[int, int], steps: list[tuple[int, int]], refill: Any
) -> None:
    limit, per_ms = rate
    rule: dict[str, Any] = {"limit": limit, "per_ms": per_ms, "refill": refill}
    shelf, now = Shelf(), NOW
    for step, n in steps:
        now += step
        n = min(n, limit)
        taken = shelf.take(now, n, **rule)
        if not taken:
            assert taken.retry_after_ms is not None
            assert taken.retry_after_ms > 0
            again = checked_take("k", n, **rule)
            assert decide(shelf.counter, again, now + taken.retry_after_ms)[0].ok
            assert not decide(shelf.counter, again, now + taken.retry_after_ms - 1)[0].ok


@given(rates, rates, moves, st.sampled_from(["steady", "at_once"]))
def test_an_expired_counter_is_equivalent_to_none(
    rate: tuple[int, int], other: tuple[int, int], steps: list[tuple[int, int]], refill: Any
) -> None:
    shelf, now = Shelf(), NOW
    for step, n in steps:
        now += step
        limit, per_ms = other if n == 5 else rate
        taken = shelf.take(now, min(n, limit), limit=limit, per_ms=per_ms, refill=refill)
        assert taken.limit == limit
    if shelf.counter is not None:
        assert shelf.counter.expires_at is not None
        for limit, per_ms in (rate, other):
            take = checked_take("k", limit=limit, per_ms=per_ms, refill=refill)
            for later in (shelf.counter.expires_at, shelf.counter.expires_at + 77):
                assert decide(shelf.counter, take, later) == decide(None, take, later)


@given(rates, st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_reserved_tokens_are_due_in_order_and_never_too_many_at_once(rate: tuple[int, int], steps: list[int]) -> None:
    limit, per_ms = rate
    take = checked_take("k", limit=limit, per_ms=per_ms)
    counter: Counter | None = None
    now, starts = NOW, []
    for step in steps:
        now += step
        start, counter = reserve(counter, take, now)
        assert start >= now
        starts.append(start)
    assert starts == sorted(starts)
    for first, begins in enumerate(starts):
        for last in range(first, len(starts)):
            # A start is rounded up to the next millisecond, which may bring it closer to the next one.
            assert last - first + 1 <= limit + Fraction((starts[last] - begins + 1) * limit, per_ms)


def test_reserved_tokens_are_due_at_the_rate() -> None:
    take = checked_take("k", limit=10, per_ms=1_000)
    counter: Counter | None = None
    starts = []
    for _ in range(30):
        start, counter = reserve(counter, take, NOW)
        starts.append(start - NOW)
    assert starts == [0] * 10 + [100 * i for i in range(1, 21)]
    assert decide(counter, take, NOW)[0].retry_after_ms == 2_100, "a new take is behind the reservations"


def test_a_reservation_made_by_a_clock_that_is_behind_keeps_its_place() -> None:
    take = checked_take("k", limit=1, per_ms=1_000)
    _, counter = reserve(None, take, NOW)
    assert reserve(counter, take, NOW - 300)[0] == NOW + 1_000


def test_tokens_cannot_be_reserved_too_far_ahead() -> None:
    take = Take("k", 1, 1, MOST_UNITS)
    owed = Counter(CounterKind.STEADY, 4 * MOST_UNITS, NOW, MOST_UNITS, 1)
    with pytest.raises(InvalidValue, match="reserved too far ahead"):
        reserve(owed, take, NOW)
