"""A ticker: pokes when something is due, and sleeps otherwise. For a process that stays up anyway.

async with ticker(ocean):
    ...

It sleeps until the earliest due time that `advance` told it, or until somebody commits: what this process commits it
knows at once, and what others commit it sees by one cheap look a second at the file. While nothing is due and nobody
commits, it asks the database nothing. Handlers that take long go on beside it, 128 at a time, or a few more if a claim
was on its way when its poke's time was over. They hold nobody up: what becomes due meanwhile is begun within some tens
of milliseconds. A process without one loses nothing: any other poke does the same work.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from ocean.kernel.advance import Advance
from ocean.kernel.arguments import checked_count
from ocean.kernel.kernel import Kernel
from ocean.kernel.verbs.advance import Standing
from ocean.state.clock import sleep
from ocean.state.errors import StoreBusy, StoreUnusable
from ocean.state.records import AdvanceResult, Agenda

LONGEST_NAP_MS = 60_000
"""A look at the clock, not at the database: it may have been set, or the machine may have slept."""
AGAIN_MS = 1_000
MOST_AT_WORK = 128
LONGEST_REST_MS = 30_000

T = TypeVar("T")

log = logging.getLogger("ocean.ticker")


class Ticker:
    """`pokes` is how often it has called `advance`, `ticks` what came of it."""

    def __init__(self, ocean: Kernel, budget_ms: int, look_ms: int) -> None:
        self._ocean = ocean
        self._budget_ms = checked_count(budget_ms, "budget_ms", least=1)
        self._look_ms = checked_count(look_ms, "look_ms", least=1)
        self._is_stopping = False
        self._asleep = anyio.CancelScope()
        self._rest_ms = 0
        self._has_looked_again = False
        self._standing = Standing(ocean)
        self._begun: Advance | None = None
        self.pokes = 0
        self.ticks = 0

    async def run(self) -> None:
        """Until `stop`, or until the Ocean is closed. What is at work then is waited for."""
        try:
            async with anyio.create_task_group() as tasks:
                while self._begun or not self._is_stopping:
                    await self._poke_and_sleep(tasks)
        finally:
            # Only if this was cancelled is there one.
            if self._begun is not None:
                await self._begun.abandon()

    async def _poke_and_sleep(self, tasks: TaskGroup) -> None:
        if self._ocean.at_work >= MOST_AT_WORK and self._begun is None:
            with anyio.CancelScope() as self._asleep:
                await self._standing.fewer_at_work(MOST_AT_WORK)
            return
        seen = self._ocean.commits_seen()
        poked = await self._turn(tasks)
        with anyio.CancelScope() as self._asleep:
            if self._is_stopping:
                return
            if poked is None:
                await sleep(self._ocean.clock, self._rest_ms)
            elif isinstance(poked, Agenda) or not poked.outcomes:
                await self._sleep(seen, self._wake_at(poked))
            else:
                self._has_looked_again = False

    async def _turn(self, tasks: TaskGroup) -> AdvanceResult | Agenda | None:
        """What a poke did; or what there is to do besides, if its handlers take longer than its budget.

        They go on without holding up the others, which would be all that becomes due meanwhile.
        """
        advance = self._poke()
        is_over = anyio.Event()
        done: list[AdvanceResult | None] = []

        async def poke() -> None:
            poked = await self._guarded(advance)
            self.ticks += poked.advanced if poked else 0
            done.append(poked)
            is_over.set()

        tasks.start_soon(poke)
        cancel = self._ocean.clock.call_later(self._budget_ms, is_over.set)
        await is_over.wait()
        cancel()
        return done[0] if done else await self._guarded(self._ocean.agenda)

    def _poke(self) -> Callable[[], Awaitable[AdvanceResult]]:
        """What was begun ahead is gone on with."""
        self.pokes += 1
        begun, self._begun = self._begun, None
        if begun is not None:
            return partial(self._standing.go_on, begun, "ticker")
        room = MOST_AT_WORK - self._ocean.at_work
        return partial(self._ocean.advance, budget_ms=self._budget_ms, concurrency=room, source="ticker")

    async def _guarded(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """None if it failed: a busy or broken database must not end the ticker, which would be found out late."""
        try:
            answer = await ask()
        except StoreUnusable:
            self.stop()
            return None
        except Exception as error:
            if not isinstance(error, StoreBusy):
                log.exception("a poke failed; the next one comes by itself")
            self._rest_ms = min(max(2 * self._rest_ms, AGAIN_MS), LONGEST_REST_MS)
            return None
        self._rest_ms = 0
        return answer

    def _wake_at(self, poked: AdvanceResult | Agenda) -> int | None:
        if not poked.due_now:
            self._has_looked_again = False
            return poked.next_wake_at
        if not self._has_looked_again:
            # It may have become due just after the claim had looked.
            self._has_looked_again = True
            return self._ocean.clock.now()
        # Due, and yet not to be had: others are at it. Their commits are noticed; this is for when they die.
        return max(poked.next_wake_at or 0, self._ocean.clock.now() + AGAIN_MS)

    async def _sleep(self, seen: int, wake_at: int | None) -> None:
        while self._ocean.commits_seen() == seen:
            left = LONGEST_NAP_MS if wake_at is None else wake_at - self._ocean.clock.now()
            if left <= 0:
                return
            room = MOST_AT_WORK - self._ocean.at_work
            order = self._standing.order(room, self._has_begun, budget_ms=self._budget_ms, source="ticker")
            try:
                await self._ocean.next_change(seen, wait_ms=min(left, LONGEST_NAP_MS), look_ms=self._look_ms)
            finally:
                if order is not None:
                    await order.withdraw()

    def _has_begun(self, advance: Advance) -> None:
        self._begun = advance

    def stop(self) -> None:
        """Claim nothing more; what is at work goes on to its commit."""
        self._is_stopping = True
        self._asleep.cancel()


@asynccontextmanager
async def ticker(
    ocean: Kernel, *, budget_ms: int = 1_000, look_ms: int = 1_000, grace_ms: int = 10_000
) -> AsyncIterator[Ticker]:
    """Poke in the background for as long as the block lasts.

    At its end handlers at work have `grace_ms` to finish; then they are cancelled and their runs given back.
    """
    checked_count(grace_ms, "grace_ms")
    one = Ticker(ocean, budget_ms, look_ms)
    task = asyncio.create_task(one.run(), name="ocean-ticker")
    try:
        yield one
    finally:
        one.stop()
        relent = ocean.clock.call_later(grace_ms, lambda: _cancel(task))
        try:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        except asyncio.CancelledError:
            # A second Ctrl-C. The handlers are given back before the Ocean is closed under them.
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            relent()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
