"""Retention: old events from the front, finished runs, answers of request keys, in bounded batches."""

from ocean.kernel.clock import Clock
from ocean.kernel.errors import InvalidValue
from ocean.kernel.records import SweepResult
from ocean.kernel.store import Store, SweepAsk

DAY_MS = 86_400_000


async def sweep(
    store: Store,
    clock: Clock,
    *,
    events_older_than_ms: int | None,
    runs_older_than_ms: int | None,
    requests_older_than_ms: int | None,
    batch: int,
    max_batches: int,
) -> SweepResult:
    """Each batch is a transaction of its own, so that a large sweep never holds writers up for long."""
    ages = (events_older_than_ms, runs_older_than_ms, requests_older_than_ms)
    if any(age is not None and age < 0 for age in ages) or not 1 <= batch <= 10_000 or max_batches < 1:
        raise InvalidValue("sweep takes ages of at least 0 ms, batch 1 to 10000 and max_batches from 1")
    now = clock.now()
    events, runs, requests = (None if age is None else now - age for age in ages)
    ask = SweepAsk(events, runs, requests, batch)
    total = SweepResult(more=True)
    for _ in range(max_batches):
        swept = await store.sweep(ask)
        total = SweepResult(
            total.events + swept.events, total.runs + swept.runs, total.requests + swept.requests, swept.more
        )
        if not swept.more:
            break
    return total
