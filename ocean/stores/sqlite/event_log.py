"""The store's verbs about events: reading a feed, and removing what retention allows."""

import json
from typing import Any

from ocean.kernel.store.events import SweepAsk
from ocean.state.filters import FeedFilter
from ocean.state.records import Event, SweepResult
from ocean.stores.shared.rows import event_from
from ocean.stores.sqlite.deleting import delete_run
from ocean.stores.sqlite.engine.executor import UnitExecutor
from ocean.stores.sqlite.engine.unit_of_work import Unit


class SqliteEventStore(UnitExecutor):
    """Verbs about events."""

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]:
        return await self._read(lambda u: read_events(u, where, after, limit))

    async def read_newest_events(self, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
        return await self._read(lambda u: read_newest_events(u, where, before, limit))

    async def event_bounds(self) -> tuple[int, int]:
        return await self._read(event_bounds)

    async def sweep(self, ask: SweepAsk) -> SweepResult:
        return await self._write(lambda u: sweep(u, ask))

    def commits_seen(self) -> int:
        return self._transactions.commits_seen()

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        return await self._transactions.next_commit(seen, look_ms)


def read_events(u: Unit, where: FeedFilter, after: int, limit: int) -> list[Event]:
    return _events(u, where, "seq > :cursor", after, "seq", limit)


def read_newest_events(u: Unit, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
    below = "seq < :cursor" if before is not None else "seq > :cursor"
    return _events(u, where, below, before or 0, "seq DESC", limit)


def _events(u: Unit, where: FeedFilter, bound: str, cursor: int, order: str, limit: int) -> list[Event]:
    conditions: list[str] = [bound]
    values: dict[str, Any] = {"cursor": cursor, "limit": limit}
    for column in ("run_id", "session_id", "clog_id", "correlation_id"):
        wanted = getattr(where, column)
        if wanted is not None:
            conditions.append(f"{column} = :{column}")
            values[column] = wanted
    if where.types:
        conditions.append("type IN (SELECT value FROM json_each(:types))")
        values["types"] = json.dumps(where.types)
    sql = f"SELECT * FROM events WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT :limit"
    return [event_from(row) for row in u.read(sql, values)]


def event_bounds(u: Unit) -> tuple[int, int]:
    floor, last = u.one("log_floor"), u.one("last_seq")
    assert floor is not None
    assert last is not None
    return floor["seq"], last["seq"]


def sweep(u: Unit, ask: SweepAsk) -> SweepResult:
    """Remove one batch of each kind. Events are removed oldest first; of runs, children before parents."""
    events = runs = requests = 0
    if ask.events_before is not None:
        events = _sweep_events(u, ask.events_before, ask.batch)
    if ask.runs_before is not None:
        for row in u.all("sweepable_runs", before=ask.runs_before, limit=ask.batch):
            runs += delete_run(u, row["run_id"], None)
    if ask.requests_before is not None:
        requests = len(u.all("sweep_requests", before=ask.requests_before, limit=ask.batch))
    counters = len(u.all("sweep_counters", now=u.now, limit=ask.batch))
    # A removed run may have been the last child of one that can be removed now.
    more = runs > 0 or max(events, requests, counters) >= ask.batch
    return SweepResult(events, runs, requests, more, counters)


def _sweep_events(u: Unit, before: int, batch: int) -> int:
    """Remove the longest prefix of old events: an old event after a newer one stays."""
    gone = 0
    floor = None
    for row in u.all("oldest_events", limit=batch):
        if row["ts"] >= before:
            break
        floor, gone = row["seq"], gone + 1
    if floor is not None:
        u.do("delete_events", seq=floor)
        u.do("raise_log_floor", seq=floor)
    return gone
