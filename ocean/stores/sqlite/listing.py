"""Listing and counting runs: the index ranges of a filter, merged, up to a page or a cap."""

import heapq
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import islice
from typing import Any

from ocean.state.filters import RunFilter
from ocean.state.records import RunCount, RunPage
from ocean.state.values import encode
from ocean.stores.shared.cursors import cursor_of, key_of
from ocean.stores.shared.index_ranges import (
    IndexChoice,
    Key,
    QueryBuilder,
    RangeBound,
    choose_index,
    keys_sql,
    row_comparison,
)
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.run_info import infos


class SqliteDialect:
    """SQLite's SQL. Each statement names its index, so no statistics can change the plan."""

    def parameter(self, number: int, value: Any) -> str:
        return f":v{number}"

    def from_clause(self, choice: IndexChoice) -> str:
        return f"{choice.table} INDEXED BY {choice.index}"

    def join(self, table: str) -> str:
        # CROSS keeps the order of the two tables.
        return f"CROSS JOIN {table}"

    def range_conditions(
        self, choice: IndexChoice, fixed: Mapping[str, str], low: RangeBound | None, high: RangeBound | None
    ) -> list[str]:
        conditions = [f"{column} = {place}" for column, place in fixed.items()]
        conditions += [row_comparison(choice.order, end.sign, end.places) for end in (low, high) if end is not None]
        if choice.present in choice.order and (low is None or len(low.places) > 1):
            # SQLite does not infer from an upper bound or a row comparison that the partial index has all the rows.
            conditions.append(f"{choice.present} IS NOT NULL")
        return conditions

    def order_columns(self, choice: IndexChoice) -> tuple[str, ...]:
        return choice.order

    def without_index(self, column: str) -> str:
        return f"+{column}"

    def without_any_index(self, column: str) -> str:
        return self.without_index(column)

    def flag(self, column: str, is_set: bool) -> str:
        return f"{column} = {is_set:d}"


def list_runs(u: Unit, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
    """A page in the filter's order, then by id. The cursor is the last run returned, so pages stay stable while runs
    are added."""
    after = None if cursor is None else key_of(cursor, where, is_descending)
    with ExitStack() as stack:
        ranges = [
            _keys(stack.enter_context(closing(u.read(sql, values))))
            for sql, values in _statements(u, where, after, is_descending)
        ]
        keys = list(islice(heapq.merge(*ranges, reverse=is_descending), limit + 1))
    page = keys[:limit]
    run_ids = [str(key[-1]) for key in page]
    u.load(u.all("get_runs", run_ids=encode(run_ids)))
    runs = infos(u, [u.run(run_id) for run_id in run_ids])
    return RunPage(tuple(runs), cursor_of(where, is_descending, page[-1]) if len(keys) > limit else None)


def count_runs(u: Unit, where: RunFilter, cap: int) -> RunCount:
    found = 0
    for sql, values in _statements(u, where, None, False):
        counting = f"SELECT count(*) FROM ({sql} LIMIT :left)"
        found += u.read(counting, values | {"left": cap + 1 - found}).fetchone()[0]
        if found > cap:
            return RunCount(cap, True)
    return RunCount(found, False)


def _keys(rows: Any) -> Iterator[Key]:
    """Yield rows one by one as the merge needs them, so that no range is read further than the page."""
    return (tuple(row) for row in rows)


def _statements(
    u: Unit, where: RunFilter, after: Key | None, is_descending: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield one statement for each range. Each returns keys in the order of the list, starting after `after`."""
    if where.is_nothing:
        return
    choice = choose_index(where)
    for fixed in _ranges(u, choice, {}):
        builder = QueryBuilder(SqliteDialect())
        places = {column: builder.value(value) for column, value in fixed.items()}
        sql = keys_sql(builder, choice, places, where, after, is_descending)
        yield sql, {f"v{number}": value for number, value in enumerate(builder.values, 1)}


def _ranges(u: Unit, choice: IndexChoice, fixed: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield every combination of values from the sets."""
    if len(fixed) == len(choice.sets):
        yield fixed
        return
    column, values = list(choice.sets.items())[len(fixed)]
    for value in _clogs(u, fixed.get("r.session_id")) if values is None else values:
        yield from _ranges(u, choice, fixed | {column: value})


def _clogs(u: Unit, session_id: str | None) -> Iterator[str]:
    """Yield the clogs that have runs, found by one index search each."""
    last = ""
    while True:
        if session_id is None:
            row = u.one("next_clog", clog_id=last)
        else:
            row = u.one("next_clog_of_session", session_id=session_id, clog_id=last)
        if row is None:
            return
        last = row["clog_id"]
        yield last
