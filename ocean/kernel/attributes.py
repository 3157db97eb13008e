"""Attributes: the few typed values by which runs are found. Pure."""

import struct
from collections.abc import Mapping
from typing import Any

from ocean.kernel.errors import InvalidValue
from ocean.kernel.values import checked_id

MOST = 16
EXACT_INT = 2**53


def checked_attributes(attributes: Mapping[str, Any], *, allow_none: bool = False) -> dict[str, Any]:
    """Strings of at most 256 bytes, numbers and booleans, at most 16 of them; None removes one inside a tick."""
    if not isinstance(attributes, Mapping):
        raise InvalidValue(f"attributes are a mapping of names to values, got {attributes!r}")
    if len(attributes) > MOST:
        raise InvalidValue(f"a run has at most {MOST} attributes, got {len(attributes)}")
    for name, value in attributes.items():
        checked_id(name, "an attribute's name", 64)
        if not (allow_none and value is None):
            sort_key(name, value)
    return dict(attributes)


def sort_key(name: str, value: Any) -> str:
    """A text whose byte order is the value's order, kind by kind, on every database alike."""
    match value:
        case bool():
            return f"b{int(value)}"
        case int() | float():
            return f"n{_ordered_number(name, value)}"
        case str():
            if value:
                checked_id(value, f"attribute {name!r}")
            return f"s{value}"
        case _:
            raise InvalidValue(f"attribute {name!r} must be a string, number or boolean, got {value!r}")


def _ordered_number(name: str, value: int | float) -> str:
    if isinstance(value, int) and abs(value) > EXACT_INT:
        raise InvalidValue(f"attribute {name!r} is beyond ±2^53 and would not be exact; pass it as a string")
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidValue(f"attribute {name!r} is {value}, which has no place in an order")
    bits = int.from_bytes(struct.pack(">d", value + 0.0))
    ordered = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    return f"{ordered:016x}"
