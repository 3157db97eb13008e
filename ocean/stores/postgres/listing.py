"""Lists, counts and feeds: one statement each, put together from the same stretches of indexes as on SQLite."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ocean.kernel.filters import FeedFilter, RunFilter
from ocean.kernel.records import Event, RunCount, RunInfo
from ocean.kernel.values import decode, encode
from ocean.stores.postgres.link import Connection, Link
from ocean.stores.sqlite.info import infos
from ocean.stores.sqlite.listing import cursor_after, cursor_of, order_asked
from ocean.stores.sqlite.streams import Key, streams
from ocean.stores.sqlite.unit import Unit


async def page(
    link: Link, where: RunFilter, limit: int, cursor: str | None, is_descending: bool
) -> tuple[list[str], str | None]:
    """The ids of a page's runs, and the cursor of the next page."""
    order = order_asked(where, is_descending)
    after = None if cursor is None else cursor_after(cursor, order, where)

    async def ask(db: Connection) -> list[Key]:
        values: list[Any] = []
        parts = [f"({sql} LIMIT {limit + 1})" for sql in await _statements(db, where, after, is_descending, values)]
        if not parts:
            return []
        direction = "DESC" if is_descending else "ASC"
        places = range(1, (4 if where.ranged is not None else 3))
        by = ", ".join(f"{place} {direction}" for place in places)
        joined = f"SELECT * FROM ({' UNION ALL '.join(parts)}) f ORDER BY {by} LIMIT {limit + 1}"
        rows = await db.fetch(joined, *values)
        return [tuple(row) for row in rows]

    keys = await link.read(ask)
    shown = keys[:limit]
    return [str(key[-1]) for key in shown], cursor_of(order, shown[-1]) if len(keys) > limit else None


def shown(u: Unit, run_ids: Sequence[str]) -> list[RunInfo]:
    """Those that are still there."""
    u.loaded(u.all("get_runs", run_ids=encode(list(run_ids))))
    return infos(u, [run for run_id in run_ids if (run := u.find(run_id)) is not None])


async def count(link: Link, where: RunFilter, cap: int) -> RunCount:
    async def ask(db: Connection) -> int:
        values: list[Any] = []
        parts = [f"({sql} LIMIT {cap + 1})" for sql in await _statements(db, where, None, False, values)]
        if not parts:
            return 0
        return int(await db.fetchval(f"SELECT count(*) FROM ({' UNION ALL '.join(parts)}) f", *values))

    found = await link.read(ask)
    return RunCount(min(found, cap), found > cap)


async def _statements(
    db: Connection, where: RunFilter, after: Key | None, is_descending: bool, values: list[Any]
) -> list[str]:
    rows = [] if where.clog_ids is not None else await db.fetch("SELECT clog_id FROM ocean_clogs ORDER BY clog_id")
    clogs = _Clogs([row["clog_id"] for row in rows])
    found = streams(clogs, where, after, is_descending)
    return [_translated(sql, given, values) for sql, given in found]


class _Clogs:
    """The clogs that may have runs, asked for one after another."""

    def __init__(self, clog_ids: list[str]) -> None:
        self._clog_ids = clog_ids

    def one(self, name: str, /, **values: Any) -> Mapping[str, Any] | None:
        return next(({"clog_id": found} for found in self._clog_ids if found > values["clog_id"]), None)


def _translated(sql: str, given: Mapping[str, Any], values: list[Any]) -> str:
    """SQLite's statement in PostgreSQL's words: places instead of names, and no advice on indexes."""

    def place(match: re.Match[str]) -> str:
        values.append(given[match[1]])
        return f"${len(values)}"

    sql = re.sub(r" INDEXED BY \w+", "", sql).replace("+r.", "r.").replace(" CROSS JOIN ", " JOIN ")
    return re.sub(r":(\w+)", place, sql.replace(" WHERE 1 ", " WHERE true "))


async def read_events(link: Link, where: FeedFilter, after: int, limit: int) -> list[Event]:
    async def ask(db: Connection) -> list[Event]:
        values: list[Any] = [after, limit]
        conditions = ["seq > $1", *_conditions(where, values)]
        sql = f"SELECT * FROM events WHERE {' AND '.join(conditions)} ORDER BY seq LIMIT $2"
        return [_event(row) for row in await db.fetch(sql, *values)]

    return await link.read(ask)


def _conditions(where: FeedFilter, values: list[Any]) -> Iterator[str]:
    for column in ("run_id", "session_id", "clog_id", "correlation_id"):
        wanted = getattr(where, column)
        if wanted is not None:
            values.append(wanted)
            yield f"{column} = ${len(values)}"
    if where.types:
        values.append(list(where.types))
        yield f"type = ANY (${len(values)}::text[])"


def _event(row: Any) -> Event:
    values: dict[str, Any] = {name: row[name] for name in Event.__slots__}
    return Event(**values | {"payload": decode(row["payload"])})
