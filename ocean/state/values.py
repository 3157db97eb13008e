"""The one JSON gate: what passes here can be stored, hashed and read back alike on every store."""

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
    """The standard library's encoder, made once: by itself it makes another for each value, which costs more than to
    use it."""
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
    """A value that has become JSON text here already: nobody can change it any more."""

    __slots__ = ()


def encode(value: Any, what: str = "value") -> str:
    """The value as JSON text, or `InvalidValue` naming the place that is not JSON."""
    return str(value) if type(value) is Json else encode_to_hash(value, what)[0]


def encode_to_hash(value: Any, what: str = "value") -> tuple[str, Any]:
    """The same, and what of it `body_hash` is to be told: the value, if it says of itself what the text says of it."""
    if type(value) is Json:
        return str(value), decode(value)
    text = _written(value) if _is_plain(value, 0) else _NUL
    size = _size_of_clean(text)
    if size is None:
        # Something is wrong, or may be: so each place is looked at by itself.
        value = _plain(value, what, 0)
        text = _written(value)
        size = len(text.encode())
    if size > MAX_BYTES:
        raise InvalidValue(f"{what} is {size} bytes of JSON, over {MAX_BYTES}: store it elsewhere, pass a reference")
    return text, value


def encode_own(value: Any) -> str:
    """What Ocean itself says, of values that were checked when they came in."""
    return _written(value)


def _size_of_clean(text: str) -> int | None:
    """How many bytes it is, if none of all the texts in it has a NUL, or half a character."""
    if _NUL in text:
        return None
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def shown(value: Any) -> str:
    """A value as an error's message shows it: never too long, and never an error itself."""
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def decode(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def body_hash(body: Any) -> str:
    """A hash that is equal for equal JSON, whatever the order of keys."""
    return hashlib.sha256(_sorted(body).encode()).hexdigest()


def checked_id(value: Any, what: str, limit: int = 256) -> str:
    """Ids and keys: non-empty text of at most `limit` bytes, storable everywhere."""
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{what} must be a non-empty string, got {shown(value)}")
    _check_text(value, what)
    if (len(value) if value.isascii() else len(value.encode())) > limit:
        raise InvalidValue(f"{what} is longer than {limit} bytes")
    return value


def checked_time(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**53:
        raise InvalidValue(f"{what} must be milliseconds since 1970 as an integer, got {shown(value)}")
    return value


def _is_plain(value: Any, depth: int) -> bool:
    """Whether it is JSON as it is, but for what its texts hold: `_plain` says the same, and why not."""
    if type(value) in _WORDS or isinstance(value, str):
        return True
    if isinstance(value, int):
        return INT_MIN <= value <= INT_MAX
    if isinstance(value, float):
        return math.isfinite(value)
    if depth >= MAX_DEPTH:
        return False
    depth += 1
    # Plain loops: a generator for each level would take twice as long.
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
        raise InvalidValue(f"{where} is nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case str():
            _check_text(value, where)
            return value
        case int():
            if not INT_MIN <= value <= INT_MAX:
                raise InvalidValue(f"{where} is an integer beyond 64 bits; pass it as a string")
            return int(value)
        case float():
            if not math.isfinite(value):
                raise InvalidValue(f"{where} is {value}, which JSON cannot say")
            return value
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise InvalidValue(f"{where} has the key {key!r}; JSON keys are strings")
                _check_text(key, f"a key of {where}")
            return {key: _plain(item, _inside(where, f".{key}"), depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, _inside(where, f"[{index}]"), depth + 1) for index, item in enumerate(value)]
        case BaseModel():
            return _plain(_dumped(value, where), where, depth)
        case _:
            raise InvalidValue(f"{where} is a {type(value).__name__}, which is not JSON")


def _inside(where: str, part: str) -> str:
    """Cut off where it gets long: it is put together for every item, and names come from outside."""
    return where if len(where) > LONGEST_PLACE else f"{where}{part[:LONGEST_SHOWN]}"


def _dumped(model: BaseModel, where: str) -> Any:
    """A model as JSON values. Its own dump would make null of NaN without a word."""
    try:
        _refuse_non_finite(model.model_dump(), where)
        return model.model_dump(mode="json")
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{where} is a {type(model).__name__} that cannot be stored: {error}") from error


def _refuse_non_finite(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue(f"{where} has {value}, which JSON cannot say")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    for item in items:
        _refuse_non_finite(item, where)


def _check_text(text: str, where: str) -> None:
    if "\x00" in text:
        raise InvalidValue(f"{where} contains a NUL character")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(f"{where} contains a lone surrogate") from None
