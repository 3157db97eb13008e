"""The delay after each failure."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocean.state.backoff import RetryPolicy, delay_for
from ocean.state.errors import InvalidValue
from ocean.state.values import decode, encode

DEFAULT = RetryPolicy()


def test_the_default_is_three_attempts_from_one_second_doubling_to_sixty() -> None:
    assert (DEFAULT.max_attempts, DEFAULT.max_elapsed_ms, DEFAULT.jitter) == (3, None, 0)
    waits = [delay_for(DEFAULT, attempt, 0.9) for attempt in range(1, 9)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_own_delays_replace_the_doubling_and_the_last_one_repeats() -> None:
    policy = RetryPolicy(delays_ms=(5, 300, 7))
    assert [delay_for(policy, attempt, 0.9) for attempt in range(1, 6)] == [5, 300, 7, 7, 7]


def test_the_millionth_attempt_waits_the_longest_delay_without_a_huge_number() -> None:
    assert delay_for(RetryPolicy(max_attempts=None), 1_000_000, 0.0) == 60_000


def test_a_back_off_of_zero_stays_zero() -> None:
    assert delay_for(RetryPolicy(backoff_ms=0, jitter=10), 7, 0.99) == 0


def test_jitter_adds_its_fraction_of_the_delay() -> None:
    policy = RetryPolicy(jitter=0.5)
    assert [delay_for(policy, 2, roll) for roll in (0.0, 0.5, 0.999)] == [2_000, 2_500, 2_999]


def test_jitter_is_added_to_own_delays_too() -> None:
    assert delay_for(RetryPolicy(delays_ms=(100,), jitter=1.0), 1, 0.5) == 150


@settings(deadline=None)
@given(
    attempt=st.integers(1, 10_000),
    backoff=st.integers(0, 2**40),
    most=st.integers(0, 2**40),
    jitter=st.floats(0, 10),
    roll=st.floats(0, 1, exclude_max=True),
)
def test_jitter_only_ever_adds_and_delays_never_shrink(
    attempt: int, backoff: int, most: int, jitter: float, roll: float
) -> None:
    steady = RetryPolicy(max_attempts=None, backoff_ms=backoff, backoff_max_ms=most)
    base = delay_for(steady, attempt, 0.0)
    assert base <= delay_for(replace(steady, jitter=jitter), attempt, roll) <= base + base * jitter
    assert base <= delay_for(steady, attempt + 1, 0.0) <= most


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be an integer from 1 to 1000000 or None, got 0"),
        ({"max_attempts": -1}, "max_attempts must be an integer from 1"),
        ({"max_attempts": 1_000_001}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts must be an integer"),
        ({"max_attempts": True}, "max_attempts must be an integer"),
        ({"delays_ms": ()}, "delays_ms must have at least one delay"),
        ({"delays_ms": (1, -1)}, "non-negative integers of milliseconds"),
        ({"delays_ms": (1.5,)}, "non-negative integers of milliseconds"),
        ({"backoff_ms": -1}, "non-negative integers of milliseconds"),
        ({"backoff_ms": True}, "non-negative integers of milliseconds"),
        ({"backoff_ms": 2**40 + 1}, "non-negative integers of milliseconds"),
        ({"backoff_max_ms": -1}, "non-negative integers of milliseconds"),
        ({"max_elapsed_ms": -1}, "non-negative integers of milliseconds"),
        ({"jitter": -0.1}, "jitter must be a number from 0 to 10, got -0.1"),
        ({"jitter": 10.1}, "jitter"),
        ({"jitter": float("nan")}, "jitter"),
    ],
    ids=repr,
)
def test_an_invalid_policy_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        RetryPolicy(**fields)


def test_a_policy_survives_being_stored() -> None:
    policy = RetryPolicy(max_attempts=None, delays_ms=[1, 2], max_elapsed_ms=9, jitter=0.25)  # type: ignore[arg-type]
    assert RetryPolicy(**decode(encode(policy.as_json()))) == policy
