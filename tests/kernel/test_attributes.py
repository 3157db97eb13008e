"""Attributes: the byte order of their keys is their order, and values without an order are refused."""

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ocean.state.attributes import EXACT_INT, MOST, checked_attributes, sort_key
from ocean.state.errors import InvalidValue

NUMBERS = st.integers(-EXACT_INT, EXACT_INT) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=60)


def as_bytes(value: Any) -> bytes:
    """Return the bytes that a database compares."""
    return sort_key("n", value).encode()


def order(one: Any, other: Any) -> tuple[bool, bool, bool]:
    return one < other, one == other, one > other


@settings(deadline=None)
@given(NUMBERS, NUMBERS)
@example(0.0, -0.0)
@example(0, -0.0)
@example(1, 1.0)
@example(-1, 0.5)
@example(EXACT_INT, EXACT_INT - 1)
@example(5e-324, -5e-324)
@example(-1.5, -1.25)
@example(1.7e308, EXACT_INT)
def test_the_byte_order_of_numbers_is_their_order(one: float, other: float) -> None:
    assert order(as_bytes(one), as_bytes(other)) == order(one, other)


@settings(deadline=None)
@given(TEXTS, TEXTS)
@example("", "a")
@example("a", "ab")
@example("Z", "a")
@example("\uffff", "\U00010000")
def test_the_byte_order_of_texts_is_the_order_of_their_code_points(one: str, other: str) -> None:
    assert order(as_bytes(one), as_bytes(other)) == order(one, other)


def test_false_comes_before_true() -> None:
    assert as_bytes(False) < as_bytes(True)


@settings(deadline=None)
@given(st.booleans(), NUMBERS, TEXTS)
@example(True, 1, "1")
def test_kinds_do_not_mix(boolean: bool, number: float, text: str) -> None:
    assert as_bytes(boolean) < as_bytes(number) < as_bytes(text)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (EXACT_INT + 1, "must be within ±2\\^53 to be exact; pass it as a string"),
        (-EXACT_INT - 1, "must be within ±2\\^53"),
        (10**400, "must be within ±2\\^53"),
        (math.nan, "must be finite, got nan"),
        (math.inf, "must be finite, got inf"),
        (-math.inf, "must be finite, got -inf"),
        ("x" * 257, "must be at most 256 bytes"),
        ("ä" * 129, "must be at most 256 bytes"),
        ("a\x00", "NUL"),
        (chr(0xDFFF), "lone surrogate"),
        (None, "must be a string, number or boolean, got None"),
        ([1], "must be a string, number or boolean, got \\[1\\]"),
        ({}, "must be a string, number or boolean"),
        (b"x", "must be a string, number or boolean"),
    ],
    ids=[
        "2^53 + 1",
        "-2^53 - 1",
        "10^400",
        "nan",
        "inf",
        "-inf",
        "257 bytes",
        "258 bytes",
        "nul",
        "surrogate",
        "none",
        "list",
        "object",
        "bytes",
    ],
)
def test_an_invalid_attribute_is_refused_with_its_name(value: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=f"attribute 'size'.*{message}"):
        checked_attributes({"size": value})


def test_a_text_of_256_bytes_an_empty_text_and_the_exact_integers_are_taken() -> None:
    given_ = {"a": "ä" * 128, "b": "", "c": EXACT_INT, "d": -EXACT_INT, "e": 1e300, "f": False}
    assert checked_attributes(given_) == given_


def test_sixteen_are_taken_and_seventeen_are_not() -> None:
    most = {f"name-{number}": number for number in range(MOST)}
    assert (checked_attributes(most), MOST) == (most, 16)
    with pytest.raises(InvalidValue, match="at most 16 attributes, got 17"):
        checked_attributes(most | {"one-more": 1})


@pytest.mark.parametrize("name", ["", "x" * 65, "a\x00", 7, None], ids=["empty", "65 bytes", "nul", "number", "none"])
def test_a_name_must_be_a_short_text(name: Any) -> None:
    with pytest.raises(InvalidValue, match="an attribute's name"):
        checked_attributes({name: 1})


def test_none_removes_an_attribute_only_where_that_is_allowed() -> None:
    assert checked_attributes({"gone": None}, allow_none=True) == {"gone": None}
    with pytest.raises(InvalidValue, match="attribute 'gone'"):
        checked_attributes({"gone": None})


def test_the_checked_attributes_are_a_copy() -> None:
    given_ = {"a": 1}
    checked_attributes(given_)["a"] = 2
    assert given_ == {"a": 1}
