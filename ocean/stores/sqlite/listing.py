"""Listing and counting runs: the streams of a filter, merged, a page of it or up to a cap."""

import base64
import heapq
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from typing import Any

from ocean.kernel.errors import BadCursor, InvalidValue
from ocean.kernel.filters import RunFilter
from ocean.kernel.records import RunCount, RunPage
from ocean.kernel.values import checked_id, encode
from ocean.stores.sqlite.info import infos
from ocean.stores.sqlite.streams import Key, order_of, streams
from ocean.stores.sqlite.unit import Unit

LONGEST_CURSOR = 8_192


def list_runs(u: Unit, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
    """In the filter's order, then by id. The cursor is the last run shown, so pages stay put while runs are added."""
    order = f"{order_of(where)} {'descending' if is_descending else 'ascending'}"
    after = None if cursor is None else _decoded(cursor, order, where.ranged is not None)
    with ExitStack() as stack:
        walks = [
            _keys(stack.enter_context(closing(u.db.execute(sql, values))))
            for sql, values in streams(u, where, after, is_descending)
        ]
        keys = list(islice(heapq.merge(*walks, reverse=is_descending), limit + 1))
    page = keys[:limit]
    run_ids = [str(key[-1]) for key in page]
    u.loaded(u.all("get_runs", run_ids=encode(run_ids)))
    runs = infos(u, [u.run(run_id) for run_id in run_ids])
    return RunPage(tuple(runs), _encoded(order, page[-1]) if len(keys) > limit else None)


def count_runs(u: Unit, where: RunFilter, cap: int) -> RunCount:
    found = 0
    for sql, values in streams(u, where, None, False):
        counting = f"SELECT count(*) FROM ({sql} LIMIT :left)"
        found += u.db.execute(counting, values | {"left": cap + 1 - found}).fetchone()[0]
        if found > cap:
            return RunCount(cap, True)
    return RunCount(found, False)


def _keys(rows: Any) -> Iterator[Key]:
    """Row after row as the merge asks for them: a stream gives up no more than its share of the page."""
    return (tuple(row) for row in rows)


def _encoded(order: str, key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([order, *key]).encode()).decode()


def _decoded(cursor: str, order: str, is_by_attribute: bool) -> Key:
    try:
        if not isinstance(cursor, str) or len(cursor) > LONGEST_CURSOR:
            raise ValueError("not a cursor of ours")
        match json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)):
            case [str(made_for), *_] if made_for != order:
                raise BadCursor(f"{cursor!r} is a cursor of another order; this list is by {order}")
            case [str(), *key] if _is_key(key, is_by_attribute):
                return tuple(key)
    except (ValueError, InvalidValue, RecursionError):
        pass
    raise BadCursor(f"{cursor!r} is not a cursor; pass the next_cursor of the page before, or none")


def _is_key(key: list[Any], is_by_attribute: bool) -> bool:
    match key:
        case [str(value), int(at), str(run_id)] if is_by_attribute:
            checked_id(value, "cursor", 1_024)
        case [int(at), str(run_id)] if not is_by_attribute:
            pass
        case _:
            return False
    return 0 <= at <= 2**53 and not isinstance(at, bool) and bool(checked_id(run_id, "cursor", 1_024))
