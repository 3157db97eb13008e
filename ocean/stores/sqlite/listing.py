"""Listing and counting runs. The one place that puts statements together, from fixed pieces only."""

import base64
import json
from typing import Any

from ocean.kernel.attributes import sort_key
from ocean.kernel.errors import BadCursor, InvalidValue
from ocean.kernel.records import RunCount, RunFilter, RunPage
from ocean.kernel.values import checked_id
from ocean.stores.sqlite.info import info
from ocean.stores.sqlite.unit import Unit

LONGEST_CURSOR = 2_048


def list_runs(u: Unit, where: RunFilter, limit: int, cursor: str | None, newest_first: bool) -> RunPage:
    """By creation time, then id. The cursor is the last run shown, so pages stay put while runs are added."""
    tables, conditions, values = _select(where)
    by = "a0" if where.attributes else "r"
    if cursor is not None:
        after = _decoded(cursor)
        compare = "<" if newest_first else ">"
        conditions.append(f"({by}.created_at, {by}.run_id) {compare} (:after_created_at, :after_run_id)")
        values |= {"after_created_at": after[0], "after_run_id": after[1]}
    direction = "DESC" if newest_first else "ASC"
    sql = (
        f"SELECT r.* FROM {tables} WHERE {' AND '.join(conditions)} "
        f"ORDER BY {by}.created_at {direction}, {by}.run_id {direction} LIMIT :limit"
    )
    runs = u.loaded(u.db.execute(sql, values | {"limit": limit + 1}).fetchall())
    page = runs[:limit]
    more = len(runs) > limit
    return RunPage(
        tuple(info(u, run) for run in page), _encoded(page[-1].created_at, page[-1].run_id) if more else None
    )


def count_runs(u: Unit, where: RunFilter, cap: int) -> RunCount:
    tables, conditions, values = _select(where)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {tables} WHERE {' AND '.join(conditions)} LIMIT :cap)"
    found: int = u.db.execute(sql, values | {"cap": cap + 1}).fetchone()[0]
    return RunCount(min(found, cap), found > cap)


def _select(where: RunFilter) -> tuple[str, list[str], dict[str, Any]]:
    tables, conditions = "runs r", ["1 = 1"]
    values: dict[str, Any] = {}
    for column in ("clog_id", "session_id", "status", "parent_run_id"):
        wanted = getattr(where, column)
        if wanted is not None:
            conditions.append(f"r.{column} = :{column}")
            values[column] = wanted
    if where.attributes and where.clog_id is None:
        raise InvalidValue("attributes are indexed by clog: filter by clog_id too")
    for index, (name, value) in enumerate(where.attributes.items()):
        joined = f"ocean_attributes a{index}"
        tables = f"{joined} CROSS JOIN runs r" if index == 0 else f"{tables} CROSS JOIN {joined}"
        conditions.append(f"a{index}.run_id = r.run_id")
        conditions.append(
            f"a{index}.clog_id = :clog_id AND a{index}.name = :name{index} AND a{index}.sort_key = :key{index}"
        )
        values |= {f"name{index}": name, f"key{index}": sort_key(name, value)}
    return tables, conditions, values


def _encoded(created_at: int, run_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([created_at, run_id]).encode()).decode()


def _decoded(cursor: str) -> tuple[int, str]:
    try:
        if not isinstance(cursor, str) or len(cursor) > LONGEST_CURSOR:
            raise ValueError("not a cursor of ours")
        match json.loads(base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)):
            case [int(created_at), str(run_id)] if 0 <= created_at <= 2**53 and checked_id(run_id, "cursor", 1_024):
                return created_at, run_id
    except (ValueError, InvalidValue):
        pass
    raise BadCursor(f"{cursor!r} is not a cursor; pass the next_cursor of the page before, or none")
