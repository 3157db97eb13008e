"""What a statement costs the server: pages and index entries it has touched, and tables it has scanned.

The server counts these for each table and each index until a transaction ends. So a pool that measures opens one
around every statement.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio

from ocean import SystemClock
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.connection import Connection, ConnectionPool
from ocean.stores.postgres.client.options import options_from
from ocean.stores.postgres.store import PostgresStore

T = TypeVar("T")

SO_FAR = """
SELECT c.relname AS name, c.relkind = 'r' AS is_table, pg_stat_get_xact_numscans(c.oid) AS scans,
  pg_stat_get_xact_tuples_returned(c.oid) AS rows, pg_stat_get_xact_blocks_fetched(c.oid) AS pages,
  pg_stat_get_xact_tuples_inserted(c.oid) AS inserted, pg_stat_get_xact_tuples_updated(c.oid) AS updated,
  pg_stat_get_xact_tuples_hot_updated(c.oid) AS hot
FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i')
"""
SMALL = {"ocean_log_floor", "ocean_clogs"}
"""Tables that have one row, or one for each clog."""


@dataclass(frozen=True)
class Cost:
    """`rows` are index entries and, in tables that were scanned, rows."""

    pages: int
    rows: int
    walked: frozenset[str]
    indexes: frozenset[str]


class MeasuredPool(ConnectionPool):
    """Records the cost of its last statement and, by table, how many rows all have `inserted` and `updated`, and how
    many of these were `hot`: in place, without a new entry in any index."""

    last: Cost

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.written: dict[str, Counter[str]] = defaultdict(Counter)

    async def reach(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        async def measured(db: Connection) -> T:
            async with db.transaction():
                before = {row["name"]: row for row in await db.fetch(SO_FAR)}
                answer = await use(db)
                after = await db.fetch(SO_FAR)
                self.last = _cost(before, after)
                self._add(before, after)
                return answer

        return await super().reach(measured)

    def _add(self, before: Any, after: Any) -> None:
        for row in after:
            for what in ("inserted", "updated", "hot"):
                if row["is_table"] and row[what] > before[row["name"]][what]:
                    self.written[row["name"]][what] += row[what] - before[row["name"]][what]


def _cost(before: Any, after: Any) -> Cost:
    def more(row: Any, what: str) -> int:
        return int(row[what] - before[row["name"]][what])

    used = [row for row in after if more(row, "scans")]
    return Cost(
        sum(more(row, "pages") for row in after),
        sum(more(row, "rows") for row in after),
        frozenset(row["name"] for row in used if row["is_table"]) - SMALL,
        frozenset(row["name"] for row in used if not row["is_table"]),
    )


class MeasuredStore(PostgresStore):
    def __init__(self, url: str) -> None:
        super().__init__(url, SystemClock())
        self.pool = self.measured = MeasuredPool(options_from(url), SystemClock())
        self.batches = WriteBatches(self.pool)

    async def cost(self, verb: Awaitable[Any]) -> Cost:
        """The cost of a verb that is one statement."""
        before = self.pool.round_trips
        await verb
        assert self.pool.round_trips == before + 1
        return self.measured.last


@asynccontextmanager
async def measured(url: str) -> AsyncIterator[MeasuredStore]:
    """Use connections that have no cached plan."""
    store = MeasuredStore(f"{url}?pool=1&notify=off")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def together(*deeds: Awaitable[Any]) -> list[Any]:
    """Run these as one group."""
    results: list[Any] = [None] * len(deeds)

    async def do(place: int, deed: Awaitable[Any]) -> None:
        results[place] = await deed

    async with anyio.create_task_group() as tasks:
        for place, deed in enumerate(deeds):
            tasks.start_soon(do, place, deed)
    return results
