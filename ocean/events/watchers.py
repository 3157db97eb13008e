"""A watcher is a poke: while somebody watches a run, it is advanced when it is due."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio

from ocean.events.follower import Follower
from ocean.events.tail import Tail
from ocean.kernel.poke_sources import PokeSource
from ocean.state.clock import Clock
from ocean.state.errors import RunNotFound, StoreUnusable
from ocean.state.filters import FeedFilter
from ocean.state.records import AdvanceResult, RunInfo

BUDGET_MS = 1_000
FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 30_000

logger = logging.getLogger("ocean.events")


class Runs(Protocol):
    async def get_run(self, run_id: str) -> RunInfo | None: ...

    async def advance(self, *, budget_ms: int, run_id: str, source: PokeSource) -> AdvanceResult: ...


@dataclass(eq=False, slots=True)
class _Watch:
    """The watchers of one run, and the one task that pokes it for them."""

    watchers: int
    follower: Follower | None = None
    task: asyncio.Task[None] | None = None


class Watches:
    def __init__(self, runs: Runs, tail: Tail, clock: Clock) -> None:
        self._runs = runs
        self._tail = tail
        self._clock = clock
        self._watches: dict[str, _Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def watched_runs(self) -> int:
        return len(self._watches)

    @property
    def pokers(self) -> int:
        return len(self._tasks)

    @contextmanager
    def watching(self, run_id: str) -> Iterator[None]:
        watch = self._watches.setdefault(run_id, _Watch(0))
        watch.watchers += 1
        if watch.task is None or watch.task.done():
            watch.task = asyncio.create_task(self._attend(run_id, watch), name="ocean-watch")
            self._tasks.add(watch.task)
            watch.task.add_done_callback(self._tasks.discard)
        try:
            yield
        finally:
            watch.watchers -= 1
            if not watch.watchers:
                del self._watches[run_id]
                # A tick that has begun is finished: those who look in for a moment must not stop it.
                if watch.follower is not None:
                    watch.follower.wake()

    async def close(self) -> None:
        """Ticks that are being done for watchers are given back."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            if tasks:
                await asyncio.wait(tasks)

    async def _attend(self, run_id: str, watch: _Watch) -> None:
        try:
            with self._tail.joined(FeedFilter(run_id=run_id)) as watch.follower:
                await self._advance_when_due(run_id, watch, watch.follower)
        except (RunNotFound, StoreUnusable):
            pass  # Gone, or closed: those who follow it are told.
        except Exception:
            logger.exception("run %s is no longer advanced for those who watch it", run_id)

    async def _advance_when_due(self, run_id: str, watch: _Watch, follower: Follower) -> None:
        pause_ms = FIRST_PAUSE_MS
        while watch.watchers:
            await follower.catch_up()
            run = await self._runs.get_run(run_id)
            if run is None or run.is_ended:
                return
            wait_ms = None if run.due_at is None else run.due_at - self._clock.now()
            if wait_ms is not None and wait_ms <= 0:
                if await self._advanced(run_id):
                    pause_ms = FIRST_PAUSE_MS
                    continue
                # Due and not to be had here: held, or another's. What changes that need not be an event of this run.
                wait_ms, pause_ms = pause_ms, min(2 * pause_ms, LONGEST_PAUSE_MS)
            else:
                pause_ms = FIRST_PAUSE_MS
            if watch.watchers:
                await self._event_or_time(follower, wait_ms)

    async def _advanced(self, run_id: str) -> bool:
        try:
            return bool((await self._runs.advance(run_id=run_id, budget_ms=BUDGET_MS, source="watcher")).outcomes)
        except (RunNotFound, StoreUnusable):
            raise
        except Exception as error:
            logger.warning("cannot advance run %s (%s) for those who watch it", run_id, type(error).__name__)
            return False

    async def _event_or_time(self, follower: Follower, ms: int | None) -> None:
        cancel = None if ms is None else self._clock.call_later(ms, follower.wake)
        try:
            await follower.wait()
        finally:
            if cancel is not None:
                cancel()
