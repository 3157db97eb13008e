"""JSON values and ids: what passes these checks is stored, hashed and read back the same way by every store."""

import hashlib
import json
import json.encoder
import math
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from ocean.state.errors import InvalidValue

MAX_DEPTH = 64
LONGEST_SHOWN = 200
LONGEST_PLACE = 400
MAX_BYTES = 1024 * 1024
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_NUL = "\\u0000"
_WORDS = frozenset({str, bool, type(None)})
_LISTS = (list, tuple)


def _writer(*, sort_keys: bool) -> Callable[[Any], str]:
    """Return the standard library's encoder, created once: `json.dumps` creates one per value, which costs more than
    the encoding."""
    whole = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys, check_circular=False
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return whole.encode
    chunks = make(
        None,
        whole.default,
        json.encoder.encode_basestring,
        None,
        whole.key_separator,
        whole.item_separator,
        sort_keys,
        whole.skipkeys,
        whole.allow_nan,
    )
    return lambda value: "".join(chunks(value, 0))


_written = _writer(sort_keys=False)
_sorted = _writer(sort_keys=True)


class Json(str):
    """A value that is encoded as JSON text already, so that later changes of the object have no effect."""

    __slots__ = ()


def encode(value: Any, what: str = "value") -> str:
    """Return the value as JSON text. Raises `InvalidValue` with the place that is not JSON."""
    return str(value) if type(value) is Json else encode_to_hash(value, what)[0]


def encode_to_hash(value: Any, what: str = "value") -> tuple[str, Any]:
    """Return the JSON text, and the plain value to pass to `body_hash`."""
    if type(value) is Json:
        return str(value), decode(value)
    text = _written(value) if _is_plain(value, 0) else _NUL
    size = _size_of_clean(text)
    if size is None:
        # Something may be wrong: check each place by itself.
        value = _plain(value, what, 0)
        text = _written(value)
        size = len(text.encode())
    if size > MAX_BYTES:
        raise InvalidValue(
            f"{what} must be at most {MAX_BYTES} bytes of JSON, got {size}: store it elsewhere and pass a reference"
        )
    return text, value


def encode_own(value: Any) -> str:
    """Encode a value of Ocean itself, made of values that were checked before."""
    return _written(value)


def _size_of_clean(text: str) -> int | None:
    """Return the size in bytes, or None if a string in it contains NUL or a lone surrogate."""
    if _NUL in text:
        return None
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def shown(value: Any) -> str:
    """Return a value for an error message: bounded, and without raising."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def decode(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def body_hash(body: Any) -> str:
    """Return a hash that is equal for equal JSON, whatever the order of keys."""
    return hashlib.sha256(_sorted(body).encode()).hexdigest()


def checked_id(value: Any, what: str, limit: int = 256) -> str:
    """Check an id or key: non-empty text of at most `limit` bytes, storable in every database."""
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{what} must be a non-empty string, got {shown(value)}")
    _check_text(value, what)
    if (len(value) if value.isascii() else len(value.encode())) > limit:
        raise InvalidValue(f"{what} must be at most {limit} bytes")
    return value


def checked_time(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**53:
        raise InvalidValue(f"{what} must be milliseconds since 1970 as an integer, got {shown(value)}")
    return value


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether the value is JSON already, except for the contents of its strings. `_plain` has the same rules
    and the errors."""
    if type(value) in _WORDS or isinstance(value, str):
        return True
    if isinstance(value, int):
        return INT_MIN <= value <= INT_MAX
    if isinstance(value, float):
        return math.isfinite(value)
    if depth >= MAX_DEPTH:
        return False
    depth += 1
    # Loops, because a generator for each level takes twice as long.
    if isinstance(value, dict):
        for key, item in value.items():  # noqa: SIM110
            if not isinstance(key, str) or not _is_plain(item, depth):
                return False
        return True
    if isinstance(value, _LISTS):
        for item in value:  # noqa: SIM110
            if not _is_plain(item, depth):
                return False
        return True
    return False


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth >= MAX_DEPTH and isinstance(value, dict | list | tuple):
        raise InvalidValue(f"{where} must not be nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case str():
            _check_text(value, where)
            return value
        case int():
            if not INT_MIN <= value <= INT_MAX:
                raise InvalidValue(f"{where} must be an integer of at most 64 bits; pass it as a string")
            return int(value)
        case float():
            if not math.isfinite(value):
                raise InvalidValue(f"{where} must be a finite number, got {value}")
            return value
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise InvalidValue(f"{where} must have strings as keys, got {key!r}")
                _check_text(key, f"a key of {where}")
            return {key: _plain(item, _inside(where, f".{key}"), depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, _inside(where, f"[{index}]"), depth + 1) for index, item in enumerate(value)]
        case BaseModel():
            return _plain(_dumped(value, where), where, depth)
        case _:
            raise InvalidValue(f"{where} must be JSON, got a value of type {type(value).__name__}")


def _inside(where: str, part: str) -> str:
    """Return the place of an item, bounded: it is built for every item, and names come from callers."""
    return where if len(where) > LONGEST_PLACE else f"{where}{part[:LONGEST_SHOWN]}"


def _dumped(model: BaseModel, where: str) -> Any:
    """Return a model as JSON values. Its own dump would silently turn NaN into null."""
    try:
        _refuse_non_finite(model.model_dump(), where)
        return model.model_dump(mode="json")
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{where} must be JSON, but the {type(model).__name__} cannot be stored: {error}") from error


def _refuse_non_finite(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue(f"{where} must have finite numbers, got {value}")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    for item in items:
        _refuse_non_finite(item, where)


def _check_text(text: str, where: str) -> None:
    if "\x00" in text:
        raise InvalidValue(f"{where} must not contain a NUL character")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"{where} must not contain a lone surrogate") from None


def strict_json(text: str) -> Any:
    """Parse JSON text from outside. Raises `ValueError` for a repeated name, and for NaN and Infinity."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refused_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has {name!r} twice")
            seen.add(name)
    return made


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
