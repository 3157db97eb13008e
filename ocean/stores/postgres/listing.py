"""Lists, counts and feeds: one statement each, put together from the same stretches of indexes as on SQLite."""

from collections.abc import Mapping
from typing import Any

from ocean.state.filters import FeedFilter, RunFilter
from ocean.state.records import Event, RunCount, RunPage
from ocean.stores.postgres.client.reading import Asking
from ocean.stores.shared.cursors import cursor_of, key_of
from ocean.stores.shared.index_ranges import End, Key, Lead, Statement, compared, keys_in_order, lead_of, ordered
from ocean.stores.shared.rows import event_from, shown_from


class Words:
    """PostgreSQL's. All values are one JSON array.

    No index can be named here. But the ends of a stretch are compared as whole rows and the order has every column of
    the index, so no other index will do; and `ocean_walk` neither sorts nor reads a table from end to end.
    """

    def place(self, number: int, value: Any) -> str:
        match value:
            case int():
                return f"($1->>{number - 1})::bigint"
            case tuple():
                return f"jsonb_array_elements_text($1->{number - 1})"
            case _:
                return f"($1->>{number - 1})"

    def source(self, lead: Lead) -> str:
        return lead.table

    def beside(self, table: str) -> str:
        return f"JOIN {table}"

    def stretch(self, lead: Lead, fixed: Mapping[str, str], low: End | None, high: End | None) -> list[str]:
        return [*_between(fixed, lead.order, low, high), *([f"{lead.present} IS NOT NULL"] if lead.present else [])]

    def order(self, lead: Lead) -> tuple[str, ...]:
        return (*lead.sets, *lead.order)

    def unindexed(self, column: str) -> str:
        return column


def _between(fixed: Mapping[str, str], order: tuple[str, ...], low: End | None, high: End | None) -> list[str]:
    columns, places = (*fixed, *order), tuple(fixed.values())
    ends = (low or End(">=", ()), high or End("<=", ()))
    return [compared(columns, end.sign, (*places, *end.places)) for end in ends if places or end.places]


class Lists(Asking):
    """That part of the store."""

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        after = None if cursor is None else key_of(cursor, where, is_descending)
        if where.is_nothing:
            return RunPage((), None)
        found = await self._walk(*page(where, limit + 1, after, is_descending))
        runs = tuple(shown_from(shown) for _, shown in found[:limit])
        return RunPage(runs, cursor_of(where, is_descending, found[limit - 1][0]) if len(found) > limit else None)

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount:
        if where.is_nothing:
            return RunCount(0, False)
        (found,) = await self._walk(*count(where, cap + 1))
        return RunCount(min(found, cap), found > cap)

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]:
        return [event_from(row) for row in await self._walk(*feed(where, after, limit))]

    async def read_newest_events(self, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
        return [event_from(row) for row in await self._walk(*feed(where, before, limit, is_newest_first=True))]

    async def event_bounds(self) -> tuple[int, int]:
        floor, last = await self._ask("event_bounds")
        return floor, last


def page(where: RunFilter, most: int, after: Key | None, is_descending: bool) -> tuple[str, list[Any]]:
    """The first runs after a key: each its own key, and as it is shown."""
    lead, statement = lead_of(where), Statement(Words())
    merged = _merged(statement, lead, where, most, after, is_descending)
    order = [column.partition(".")[2] for column in lead.order]
    return (
        f"SELECT json_build_array(json_build_array({', '.join(order)}),"
        " (SELECT ocean_shown(r) FROM runs r WHERE r.run_id = page.run_id))"
        f" FROM ({merged} ORDER BY {ordered(order, is_descending)} LIMIT {most}) page",
        statement.values,
    )


def count(where: RunFilter, most: int) -> tuple[str, list[Any]]:
    statement = Statement(Words())
    merged = _merged(statement, lead_of(where), where, most, None, False)
    return f"SELECT to_json(count(*)) FROM ({merged} LIMIT {most}) counted", statement.values


def feed(where: FeedFilter, cursor: int | None, most: int, *, is_newest_first: bool = False) -> tuple[str, list[Any]]:
    """The narrowest of what is asked for leads. A cursor of None is the end of the log."""
    statement = Statement(Words())
    columns = ("run_id", "correlation_id", "session_id", "clog_id")
    wanted = {f"e.{column}": getattr(where, column) for column in columns}
    asked = {column: statement.value(value) for column, value in wanted.items() if value is not None}
    fixed = dict(list(asked.items())[:1])
    end = statement.end("<" if is_newest_first else ">", None if cursor is None else (cursor,))
    conditions = _between(fixed, ("e.seq",), *((None, end) if is_newest_first else (end, None)))
    conditions += [f"{column} = {place}" for column, place in asked.items() if column not in fixed]
    if where.types:
        conditions.append(statement.any_of("e.type", where.types))
    return (
        f"SELECT row_to_json(e) FROM events e WHERE {' AND '.join(conditions or ['true'])}"
        f" ORDER BY {ordered((*fixed, 'e.seq'), is_newest_first)} LIMIT {most}",
        statement.values,
    )


def _merged(
    statement: Statement, lead: Lead, where: RunFilter, most: int, after: Key | None, is_descending: bool
) -> str:
    """The first keys of every stretch; each stretch is a walk of its own, begun for one choice of values."""
    sources, fixed = [], {}
    for column, values in lead.sets.items():
        name = column.partition(".")[2]
        sources.append(f"{_values(statement, lead, values)} {name}s ({name})")
        fixed[column] = f"{name}s.{name}"
    walk = keys_in_order(statement, lead, fixed, where, after, is_descending)
    return f"SELECT walk.* FROM {' CROSS JOIN '.join([*sources, f'LATERAL ({walk} LIMIT {most}) walk'])}"


def _values(statement: Statement, lead: Lead, values: tuple[str, ...] | None) -> str:
    if values is not None:
        return statement.value(values)
    return f"ocean_clogs_with_runs({'session_ids.session_id' if 'r.session_id' in lead.sets else ''})"
