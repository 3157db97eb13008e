"""Lists, counts and feeds: one statement each, put together from the same stretches of indexes as on SQLite."""

from typing import Any

from ocean.kernel.filters import FeedFilter, RunFilter
from ocean.kernel.records import Event, RunCount, RunPage
from ocean.stores.cursors import cursor_of, key_of
from ocean.stores.postgres.asking import Asking
from ocean.stores.rows import event_from, shown_from
from ocean.stores.streams import Key, Lead, Statement, keys_in_order, lead_of, ordered

NARROWING = ("run_id", "session_id", "clog_id", "correlation_id")
"""What narrows a feed, and has an index: the first one leads."""


class Words:
    """PostgreSQL's. All values are one JSON array; no index can be named, but `ocean_walk` leaves no other way."""

    def place(self, number: int, value: Any) -> str:
        match value:
            case int():
                return f"($1->>{number - 1})::bigint"
            case tuple():
                return f"jsonb_array_elements_text($1->{number - 1})"
            case _:
                return f"($1->>{number - 1})"

    def source(self, table: str, index: str) -> str:
        return table

    def beside(self, table: str) -> str:
        return f"JOIN {table}"

    def unindexed(self, column: str) -> str:
        return column


class Lists(Asking):
    """That part of the store."""

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        after = None if cursor is None else key_of(cursor, where, is_descending)
        if where.is_nothing:
            return RunPage((), None)
        lead, statement = lead_of(where), Statement(Words())
        merged = _merged(statement, lead, where, limit + 1, after, is_descending)
        order = [column.partition(".")[2] for column in lead.order]
        sql = (
            f"SELECT json_build_array(json_build_array({', '.join(order)}),"
            " (SELECT ocean_shown(r) FROM runs r WHERE r.run_id = page.run_id))"
            f" FROM ({merged} ORDER BY {ordered(order, is_descending)} LIMIT {limit + 1}) page"
        )
        found = await self._walk(sql, statement.values)
        runs = tuple(shown_from(shown) for _, shown in found[:limit])
        return RunPage(runs, cursor_of(where, is_descending, found[limit - 1][0]) if len(found) > limit else None)

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount:
        if where.is_nothing:
            return RunCount(0, False)
        statement = Statement(Words())
        merged = _merged(statement, lead_of(where), where, cap + 1, None, False)
        (found,) = await self._walk(
            f"SELECT to_json(count(*)) FROM ({merged} LIMIT {cap + 1}) counted", statement.values
        )
        return RunCount(min(found, cap), found > cap)

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]:
        statement = Statement(Words())
        narrowed = [(f"e.{name}", value) for name in NARROWING if (value := getattr(where, name)) is not None]
        # The index that has the first of them, and then the cursor, is the only one in this order: with an equality
        # instead, statistics might prefer to walk the whole log for the few that fit.
        order = (*(column for column, _ in narrowed[:1]), "e.seq")
        statement.compare(order, ">", (*(value for _, value in narrowed[:1]), after))
        for column, value in narrowed:
            statement.compare((column,), "<=" if column == order[0] else "=", (value,))
        if where.types:
            statement.conditions.append(statement.any_of("e.type", where.types))
        conditions = " AND ".join(statement.conditions)
        sql = f"SELECT row_to_json(e) FROM events e WHERE {conditions} ORDER BY {', '.join(order)} LIMIT {limit}"
        return [event_from(row) for row in await self._walk(sql, statement.values)]

    async def event_bounds(self) -> tuple[int, int]:
        floor, last = await self._ask("event_bounds")
        return floor, last


def _merged(
    statement: Statement, lead: Lead, where: RunFilter, most: int, after: Key | None, is_descending: bool
) -> str:
    """The first keys of every stretch; each stretch is a walk of its own, begun for one choice of values."""
    sources = []
    for column, values in lead.sets.items():
        name = column.partition(".")[2]
        sources.append(f"{_values(statement, lead, values)} {name}s ({name})")
        statement.conditions.append(f"{column} = {name}s.{name}")
    walk = keys_in_order(statement, lead, where, after, is_descending)
    return f"SELECT walk.* FROM {' CROSS JOIN '.join([*sources, f'LATERAL ({walk} LIMIT {most}) walk'])}"


def _values(statement: Statement, lead: Lead, values: tuple[str, ...] | None) -> str:
    if values is not None:
        return statement.value(values)
    return f"ocean_clogs_with_runs({'session_ids.session_id' if 'r.session_id' in lead.sets else ''})"
