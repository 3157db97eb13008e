"""JSON values: what is accepted is read back the same, and an error names the place that was refused."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ocean.state.errors import InvalidValue
from ocean.state.values import (
    MAX_BYTES,
    Json,
    body_hash,
    checked_id,
    checked_time,
    decode,
    encode,
    encode_to_hash,
    shown,
)

SURROGATE = chr(0xD800)


def nested(levels: int, inner: Any = 1) -> Any:
    value = inner
    for _ in range(levels):
        value = [value]
    return value


def nested_empty(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def nested_objects(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"k": value}
    return value


def a_cycle() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def a_cyclic_object() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    return loop


def within(names: list[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


class Text(BaseModel):
    text: str


class Kind(StrEnum):
    A = "a"


class Level(IntEnum):
    ONE = 1


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": ({"a": [1, math.nan]}, r"^value\.a\[1\] must be a finite number, got nan$"),
    "Infinity": ({"a": math.inf}, r"^value\.a must be a finite number, got inf$"),
    "-Infinity": ([-math.inf], r"^value\[0\] must be a finite number, got -inf$"),
    "NUL in a text": ({"a": {"b": "x\x00y"}}, r"^value\.a\.b must not contain a NUL character$"),
    "NUL in a key": ({"a": {"x\x00y": 1}}, r"^a key of value\.a must not contain a NUL character$"),
    "a lone surrogate in a text": (["ok", SURROGATE], r"^value\[1\] must not contain a lone surrogate$"),
    "a lone surrogate in a key": ([{SURROGATE: 1}], r"^a key of value\[0\] must not contain a lone surrogate$"),
    "2^63": ({"n": 2**63}, r"^value\.n must be an integer of at most 64 bits; pass it as a string$"),
    "-2^63 - 1": ({"n": -(2**63) - 1}, r"^value\.n must be an integer of at most 64 bits; pass it as a string$"),
    "65 empty lists": (nested_empty(65), r"^value(\[0\]){64} must not be nested deeper than 64 levels$"),
    "65 lists": (nested(65), r"^value(\[0\]){64} must not be nested deeper than 64 levels$"),
    "65 objects": (nested_objects(65), r"^value(\.k){64} must not be nested deeper than 64 levels$"),
    "a cyclic list": (a_cycle(), r"must not be nested deeper than 64 levels$"),
    "a cyclic object": (a_cyclic_object(), r"must not be nested deeper than 64 levels$"),
    "a number as key": ({"a": {1: "x"}}, r"^value\.a must have strings as keys, got 1$"),
    "None as key": ({None: "x"}, r"^value must have strings as keys, got None$"),
    "a set": ({"a": {1, 2}}, r"^value\.a must be JSON, got a value of type set$"),
    "bytes": ([b"x"], r"^value\[0\] must be JSON, got a value of type bytes$"),
    "a datetime": ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, r"^value\.at must be JSON, got a value of type datetime$"),
    "a Decimal": ({"n": Decimal("1.0")}, r"^value\.n must be JSON, got a value of type Decimal$"),
    "a UUID": ({"id": UUID(int=1)}, r"^value\.id must be JSON, got a value of type UUID$"),
    "a complex number": (1j, r"^value must be JSON, got a value of type complex$"),
    "a function": ({"f": len}, r"^value\.f must be JSON, got a value of type builtin_function_or_method$"),
    "an exception": (ValueError("x"), r"^value must be JSON, got a value of type ValueError$"),
    "a NUL behind a long name": ({"k" * 10_000: ["\x00"]}, r"^value\.k{199}\[0\] must not contain a NUL character$"),
    "a NUL behind many long names": (
        within(["k" * 150] * 9, "\x00"),
        r"^value(\.k{150}){3} must not contain a NUL character$",
    ),
    "a NUL inside a model": ({"m": Text(text="\x00")}, r"^value\.m\.text must not contain a NUL character$"),
}


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_the_gate_refuses_and_names_the_place(value: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        encode(value)


def test_the_refusal_is_a_bad_request_and_begins_with_what_the_caller_called_it() -> None:
    with pytest.raises(InvalidValue, match=r"^Done\.output\.a must be a finite number, got nan") as refusal:
        encode({"a": math.nan}, "Done.output")
    assert (refusal.value.code, refusal.value.http_status) == ("invalid_value", 400)


PASSED: dict[str, tuple[Any, str]] = {
    "null": (None, "null"),
    "true is no 1": (True, "true"),
    "2^63 - 1": (2**63 - 1, "9223372036854775807"),
    "-2^63": (-(2**63), "-9223372036854775808"),
    "a float that is whole": (1.0, "1.0"),
    "no spaces, no escapes": ({"ä": ["𝄞", 1]}, '{"ä":["𝄞",1]}'),
    "keys in the order given": ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
    "a tuple is a list": ((1, (2,)), "[1,[2]]"),
    "a model is an object": ([Text(text="x")], '[{"text":"x"}]'),
    "an enum of texts": (Kind.A, '"a"'),
    "an enum of numbers": (Level.ONE, "1"),
    "an empty key": ({"": 0}, '{"":0}'),
    "control characters but NUL": ("\x01\n", '"\\u0001\\n"'),
}


@pytest.mark.parametrize(("value", "text"), PASSED.values(), ids=PASSED)
def test_the_gate_lets_json_through(value: Any, text: str) -> None:
    assert encode(value) == text


@pytest.mark.parametrize("make", [nested, nested_objects], ids=["lists", "objects"])
def test_64_levels_pass_the_gate(make: Callable[[int], Any]) -> None:
    assert decode(encode(make(64))) == make(64)


def test_a_mebibyte_passes_and_one_byte_more_does_not() -> None:
    most = "x" * (MAX_BYTES - 2)
    assert len(encode(most).encode()) == MAX_BYTES == 1_048_576
    with pytest.raises(
        InvalidValue, match=r"^input must be at most 1048576 bytes of JSON, got 1048577: store it elsewhere"
    ):
        encode(most + "x", "input")


def test_the_limit_counts_bytes_not_characters() -> None:
    with pytest.raises(InvalidValue, match="bytes of JSON"):
        encode("ä" * (MAX_BYTES // 2))


def test_an_absent_text_is_none_like_null() -> None:
    assert decode(None) is None
    assert decode("null") is None


TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
LEAF = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(LEAF | TEXT, lambda part: st.lists(part) | st.dictionaries(TEXT, part), max_leaves=12)


def kinds(value: Any) -> Any:
    """Return the value with its types, so that True, 1 and 1.0 differ."""
    match value:
        case list():
            return [kinds(item) for item in value]
        case dict():
            return {key: kinds(item) for key, item in value.items()}
        case float():
            return float, value.hex()
        case _:
            return type(value), value


@settings(deadline=None)
@given(JSON)
def test_a_value_that_passes_the_gate_is_read_back_unchanged(value: Any) -> None:
    assert kinds(decode(encode(value))) == kinds(value)


def reordered(value: Any) -> Any:
    match value:
        case dict():
            return {key: reordered(value[key]) for key in reversed(list(value))}
        case list():
            return [reordered(item) for item in value]
        case _:
            return value


@settings(deadline=None)
@given(JSON)
def test_a_hash_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    assert body_hash(reordered(value)) == body_hash(value)


@settings(deadline=None)
@given(JSON, JSON)
def test_different_json_has_different_hashes(one: Any, other: Any) -> None:
    assert (body_hash(one) == body_hash(other)) == (encode(reordered_by_key(one)) == encode(reordered_by_key(other)))


@settings(deadline=None)
@given(JSON)
def test_a_value_is_hashed_like_its_text(value: Any) -> None:
    text, to_hash = encode_to_hash(value)
    assert text == encode(value)
    assert body_hash(to_hash) == body_hash(decode(text))


class Named(StrEnum):
    KEY = "key"


class Numbered(IntEnum):
    ONE = 1


class Modelled(BaseModel):
    name: str = "x"
    size: float = 2.0


@pytest.mark.parametrize(
    "value",
    [(1, (2,)), {Named.KEY: Numbered.ONE}, Modelled(), [{"b": Modelled(), "a": -0.0}], Json('{"b":1,"a":[1e16]}')],
    ids=["tuples", "enums", "a model", "a model inside", "text that is JSON already"],
)
def test_a_value_that_is_not_plain_json_is_hashed_like_its_text(value: Any) -> None:
    text, to_hash = encode_to_hash(value)
    assert body_hash(to_hash) == body_hash(decode(text))


def reordered_by_key(value: Any) -> Any:
    match value:
        case dict():
            return {key: reordered_by_key(value[key]) for key in sorted(value)}
        case list():
            return [reordered_by_key(item) for item in value]
        case _:
            return value


@pytest.mark.parametrize(
    ("one", "other"), [([1, 2], [2, 1]), ({"a": 1}, {"a": "1"}), (None, {}), (True, 1), ("", None), ([], {})], ids=repr
)
def test_hashes_distinguish(one: Any, other: Any) -> None:
    assert body_hash(one) != body_hash(other)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must be a non-empty string, got ''"),
        (None, "must be a non-empty string, got None"),
        (7, "must be a non-empty string, got 7"),
        (b"x", "must be a non-empty string"),
        ("a\x00b", "must not contain a NUL character"),
        (SURROGATE, "must not contain a lone surrogate"),
        ("x" * 257, "must be at most 256 bytes"),
        ("ä" * 129, "must be at most 256 bytes"),
    ],
    ids=["empty", "none", "number", "bytes", "nul", "surrogate", "257 bytes", "258 bytes in 129 characters"],
)
def test_an_id_that_cannot_be_stored_everywhere_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=f"^run_id {message}"):
        checked_id(value, "run_id")


def test_an_id_of_256_bytes_is_taken_as_it_is() -> None:
    assert checked_id("ä" * 128, "run_id") == "ä" * 128
    assert checked_id(" x ", "run_id") == " x "


@pytest.mark.parametrize("value", [-1, 2**53 + 1, True, 1.5, "1", None], ids=repr)
def test_a_time_that_is_no_count_of_milliseconds_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^wake_at must be milliseconds since 1970 as an integer"):
        checked_time(value, "wake_at")


@pytest.mark.parametrize("value", [0, 1, 2**53])
def test_a_time_is_taken_as_it_is(value: int) -> None:
    assert checked_time(value, "wake_at") == value


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\ud800\x00", r"'a\ud800\x00'"),
        (10**5000, "a int that cannot be shown"),
        (Unshowable(), "a Unshowable that cannot be shown"),
        ("x" * 10_000_000, "'" + "x" * 199 + "…"),
    ],
    ids=["not storable", "too many digits", "no repr", "long"],
)
def test_a_refused_value_is_shown_briefly_and_showing_it_never_fails(value: Any, text: str) -> None:
    assert shown(value) == text
