"""Lists, counts and feeds: one statement each, built from the same index ranges as on SQLite."""

from collections.abc import Mapping
from typing import Any

from ocean.state.filters import FeedFilter, RunFilter
from ocean.state.records import Event, RunCount, RunPage
from ocean.stores.postgres.client.reading import ReadClient
from ocean.stores.shared.cursors import cursor_of, key_of
from ocean.stores.shared.index_ranges import (
    IndexChoice,
    Key,
    QueryBuilder,
    RangeBound,
    choose_index,
    keys_sql,
    order_by,
    row_comparison,
)
from ocean.stores.shared.rows import event_from, run_info_from


class PostgresDialect:
    """PostgreSQL's SQL. All values are one JSON array.

    PostgreSQL has no syntax to name an index. But the bounds of a range are compared as whole rows and the order has
    every column of the index, so no other index fits; and `ocean_walk` neither sorts nor scans a table.
    """

    def parameter(self, number: int, value: Any) -> str:
        match value:
            case int():
                return f"($1->>{number - 1})::bigint"
            case tuple():
                return f"jsonb_array_elements_text($1->{number - 1})"
            case _:
                return f"($1->>{number - 1})"

    def from_clause(self, choice: IndexChoice) -> str:
        return choice.table

    def join(self, table: str) -> str:
        return f"JOIN {table}"

    def range_conditions(
        self, choice: IndexChoice, fixed: Mapping[str, str], low: RangeBound | None, high: RangeBound | None
    ) -> list[str]:
        return [
            *_between(fixed, choice.order, low, high),
            *([f"{choice.present} IS NOT NULL"] if choice.present else []),
        ]

    def order_columns(self, choice: IndexChoice) -> tuple[str, ...]:
        return (*choice.sets, *choice.order)

    def without_index(self, column: str) -> str:
        return column

    def without_any_index(self, column: str) -> str:
        return f"({column} || '')"

    def flag(self, column: str, is_set: bool) -> str:
        return column if is_set else f"NOT {column}"


def _between(
    fixed: Mapping[str, str], order: tuple[str, ...], low: RangeBound | None, high: RangeBound | None
) -> list[str]:
    columns, places = (*fixed, *order), tuple(fixed.values())
    ends = (low or RangeBound(">=", ()), high or RangeBound("<=", ()))
    return [row_comparison(columns, end.sign, (*places, *end.places)) for end in ends if places or end.places]


class Lists(ReadClient):
    """The store's verbs that list or count runs, and read events."""

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        after = None if cursor is None else key_of(cursor, where, is_descending)
        if where.is_nothing:
            return RunPage((), None)
        found = await self._walk(*page(where, limit + 1, after, is_descending))
        runs = tuple(run_info_from(shown) for _, shown in found[:limit])
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
        floor, last = await self._read("event_bounds")
        return floor, last


def page(where: RunFilter, most: int, after: Key | None, is_descending: bool) -> tuple[str, list[Any]]:
    """The statement for the first runs after a key: for each, its key and its public record."""
    choice, builder = choose_index(where), QueryBuilder(PostgresDialect())
    merged = _merged(builder, choice, where, most, after, is_descending)
    order = [column.partition(".")[2] for column in choice.order]
    return (
        f"SELECT json_build_array(json_build_array({', '.join(order)}),"
        " (SELECT ocean_shown(r) FROM runs r WHERE r.run_id = page.run_id))"
        f" FROM ({merged} ORDER BY {order_by(order, is_descending)} LIMIT {most}) page",
        builder.values,
    )


def count(where: RunFilter, most: int) -> tuple[str, list[Any]]:
    builder = QueryBuilder(PostgresDialect())
    merged = _merged(builder, choose_index(where), where, most, None, False)
    return f"SELECT to_json(count(*)) FROM ({merged} LIMIT {most}) counted", builder.values


def feed(where: FeedFilter, cursor: int | None, most: int, *, is_newest_first: bool = False) -> tuple[str, list[Any]]:
    """The statement for a feed, by the index of its narrowest condition. A cursor of None is the end of the log."""
    builder = QueryBuilder(PostgresDialect())
    columns = ("run_id", "correlation_id", "session_id", "clog_id")
    wanted = {f"e.{column}": getattr(where, column) for column in columns}
    asked = {column: builder.value(value) for column, value in wanted.items() if value is not None}
    fixed = dict(list(asked.items())[:1])
    end = builder.bound("<" if is_newest_first else ">", None if cursor is None else (cursor,))
    conditions = _between(fixed, ("e.seq",), *((None, end) if is_newest_first else (end, None)))
    conditions += [f"{column} = {place}" for column, place in asked.items() if column not in fixed]
    if where.types:
        conditions.append(builder.any_of("e.type", where.types))
    return (
        f"SELECT row_to_json(e) FROM events e WHERE {' AND '.join(conditions or ['true'])}"
        f" ORDER BY {order_by((*fixed, 'e.seq'), is_newest_first)} LIMIT {most}",
        builder.values,
    )


def _merged(
    builder: QueryBuilder, choice: IndexChoice, where: RunFilter, most: int, after: Key | None, is_descending: bool
) -> str:
    """The statement for the first keys of every range, one index walk for each combination of values."""
    sources, fixed = [], {}
    for column, values in choice.sets.items():
        name = column.partition(".")[2]
        sources.append(f"{_values(builder, choice, values)} {name}s ({name})")
        fixed[column] = f"{name}s.{name}"
    walk = keys_sql(builder, choice, fixed, where, after, is_descending)
    return f"SELECT walk.* FROM {' CROSS JOIN '.join([*sources, f'LATERAL ({walk} LIMIT {most}) walk'])}"


def _values(builder: QueryBuilder, choice: IndexChoice, values: tuple[str, ...] | None) -> str:
    if values is not None:
        return builder.value(values)
    return f"ocean_clogs_with_runs({'session_ids.session_id' if 'r.session_id' in choice.sets else ''})"
