"""Retention: delete the oldest events, ended runs, stored responses and unused counters, in bounded batches."""

from collections.abc import Callable

from ocean.kernel.arguments import checked_count
from ocean.kernel.store import Store
from ocean.kernel.store.events import SweepAsk
from ocean.state.clock import Clock
from ocean.state.errors import InvalidValue
from ocean.state.records import SweepResult
from ocean.state.values import shown

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
    on_progress: Callable[[SweepResult], object] | None = None,
) -> SweepResult:
    """Delete what is older than given. Each batch is one transaction, so a large sweep does not block writers."""
    ages = (events_older_than_ms, runs_older_than_ms, requests_older_than_ms)
    for age in ages:
        if age is not None:
            checked_count(age, "an age to sweep")
    checked_count(batch, "batch", least=1, most=10_000)
    checked_count(max_batches, "max_batches", least=1)
    if on_progress is not None and not callable(on_progress):
        raise InvalidValue(f"on_progress must be a function that takes a SweepResult, got {shown(on_progress)}")
    now = clock.now()
    events, runs, requests = (None if age is None else now - age for age in ages)
    ask = SweepAsk(events, runs, requests, batch)
    total = SweepResult(more=True)
    for _ in range(max_batches):
        swept = await store.sweep(ask)
        total = SweepResult(
            total.events + swept.events,
            total.runs + swept.runs,
            total.requests + swept.requests,
            swept.more,
            total.counters + swept.counters,
        )
        if on_progress is not None:
            on_progress(total)
        if not swept.more:
            break
    return total
