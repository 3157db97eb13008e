"""Cursors of run lists: the order of a list and the position of a run in it, as text that the caller passes back."""

import base64
import json
from typing import Any

from ocean.state.errors import BadCursor, InvalidValue
from ocean.state.filters import RunFilter
from ocean.state.values import checked_id
from ocean.stores.shared.index_ranges import Key, order_of

LONGEST_CURSOR = 8_192


def cursor_of(where: RunFilter, is_descending: bool, key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([_order(where, is_descending), *key]).encode()).decode()


def key_of(cursor: str, where: RunFilter, is_descending: bool) -> Key:
    """Return the key at which the page before ended. A cursor of another order is refused."""
    order = _order(where, is_descending)
    try:
        if not isinstance(cursor, str) or len(cursor) > LONGEST_CURSOR:
            raise ValueError("not a cursor")
        match json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)):
            case [str(made_for), *_] if made_for != order:
                raise BadCursor(f"`cursor` must be of a list by {order}, got one of another order: {cursor!r}")
            case [str(), *key] if _is_key(key, where.ranged is not None):
                return tuple(key)
    except (ValueError, InvalidValue, RecursionError):
        pass
    raise BadCursor(f"`cursor` must be the next_cursor of the page before, or absent, got {cursor!r}")


def _order(where: RunFilter, is_descending: bool) -> str:
    return f"{order_of(where)} {'descending' if is_descending else 'ascending'}"


def _is_key(key: list[Any], is_by_attribute: bool) -> bool:
    match key:
        case [str(value), int(at), str(run_id)] if is_by_attribute:
            checked_id(value, "cursor", 1_024)
        case [int(at), str(run_id)] if not is_by_attribute:
            pass
        case _:
            return False
    return 0 <= at <= 2**53 and not isinstance(at, bool) and bool(checked_id(run_id, "cursor", 1_024))
