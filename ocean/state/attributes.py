"""Attributes: typed values of a run, by which queries find it. Pure."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ocean.state.errors import InvalidValue
from ocean.state.filters import Span
from ocean.state.values import checked_id, shown

MOST = 16
EXACT_INT = 2**53


@dataclass(frozen=True, slots=True)
class Within:
    """A range of attribute values, all strings or all numbers: `Within(gte=10, lt=20)`, `Within(gt="m")`."""

    gt: str | int | float | None = None
    gte: str | int | float | None = None
    lt: str | int | float | None = None
    lte: str | int | float | None = None


def checked_attributes(attributes: Mapping[str, Any], *, allow_none: bool = False) -> dict[str, Any]:
    """Check attributes: strings of at most 256 bytes, numbers and booleans, at most 16. None removes one in a tick."""
    for name, value in checked_names_of(attributes).items():
        if not (allow_none and value is None):
            sort_key(name, value)
    return dict(attributes)


def checked_names_of(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(attributes, Mapping):
        raise InvalidValue(f"attributes must be a mapping of names to values, got {shown(attributes)}")
    if len(attributes) > MOST:
        raise InvalidValue(f"a run must have at most {MOST} attributes, got {len(attributes)}")
    for name in attributes:
        checked_id(name, "an attribute's name", 64)
    return attributes


def sort_key(name: str, value: Any) -> str:
    """Return a text whose byte order is the order of values of one kind, the same on every database."""
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
            raise InvalidValue(f"attribute {name!r} must be a string, number or boolean, got {shown(value)}")


def span_of(name: str, within: Within) -> Span[str]:
    """Return the range of sort keys of a `Within`. It includes only values of the same kind."""
    given = {side: value for side in Within.__slots__ if (value := getattr(within, side)) is not None}
    low, high = [side for side in ("gt", "gte") if side in given], [side for side in ("lt", "lte") if side in given]
    if not given or len(low) > 1 or len(high) > 1:
        raise InvalidValue(
            f"attribute {name!r} must be Within gt or gte, lt or lte, or one of each, got {shown(within)}"
        )
    keys = {side: sort_key(name, value) for side, value in given.items()}
    kinds = {key[0] for key in keys.values()}
    if len(kinds) > 1 or "b" in kinds:
        raise InvalidValue(f"attribute {name!r} must be Within strings or Within numbers, got {shown(within)}")
    kind = kinds.pop()
    first = keys[low[0]] if low else kind
    last = keys[high[0]] if high else chr(ord(kind) + 1)
    if first > last:
        raise InvalidValue(f"attribute {name!r} must be Within a range that begins before its end, got {within!r}")
    return Span(first, last, has_low=low != ["gt"], has_high=high == ["lte"])


def _ordered_number(name: str, value: int | float) -> str:
    if isinstance(value, int) and abs(value) > EXACT_INT:
        raise InvalidValue(f"attribute {name!r} must be within ±2^53 to be exact; pass it as a string")
    if value != value or value in (float("inf"), float("-inf")):
        raise InvalidValue(f"attribute {name!r} must be finite, got {value}")
    bits = int.from_bytes(struct.pack(">d", value + 0.0))
    ordered = bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63
    return f"{ordered:016x}"
