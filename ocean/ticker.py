"""A ticker: a background task that pokes when something is due. For a process that stays up anyway.

async with ticker(ocean):
    ...

It sleeps until the earliest due time, or until the next commit: it knows of this process's commits at once, and checks
the file once a second for those of other processes. While nothing is due and nothing is committed, it makes no query.
Slow handlers run beside it, up to 128 at a time, or a few more if a claim was in flight when its poke's budget was
spent. They delay no other run: what becomes due meanwhile starts within some tens of milliseconds. A process without a
ticker loses nothing: any other poke does the same work. While there is one, the coordinator leaves due work to it.
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
from ocean.state.clock import sleep
from ocean.state.errors import StoreBusy, StoreUnusable
from ocean.state.records import Agenda, TickResult

LONGEST_NAP_MS = 60_000
"""Then the clock is read again, not the database: it may have been set, or the machine may have slept."""
AGAIN_MS = 1_000
MOST_AT_WORK = 128
LONGEST_REST_MS = 30_000

T = TypeVar("T")

log = logging.getLogger("ocean.ticker")


class Ticker:
    """`pokes` counts the pokes of this ticker, `ticks` the ticks that they made."""

    def __init__(self, ocean: Kernel, budget_ms: int, look_ms: int) -> None:
        self._ocean = ocean
        self._coordinator = ocean.coordinator
        self._budget_ms = checked_count(budget_ms, "budget_ms", least=1)
        self._look_ms = checked_count(look_ms, "look_ms", least=1)
        self._is_stopping = False
        self._asleep = anyio.CancelScope()
        self._rest_ms = 0
        self._has_looked_again = False
        self._begun: Advance | None = None
        self.pokes = 0
        self.ticks = 0

    async def run(self) -> None:
        """Run until `stop`, or until the Ocean is closed. Then wait for the handlers that are running."""
        try:
            async with anyio.create_task_group() as tasks:
                with self._coordinator.ticking(self._takes_due), self._ocean.shutdown.calling(self.stop):
                    while self._begun or not self._is_stopping:
                        await self._poke_and_sleep(tasks)
        finally:
            # There is one only if this task was cancelled.
            if self._begun is not None:
                await self._begun.abandon()

    def _takes_due(self) -> bool:
        """Whether this ticker calls what becomes due now: it has room, and its last poke did not fail."""
        return not self._is_stopping and not self._rest_ms and self._ocean.at_work < MOST_AT_WORK

    async def _poke_and_sleep(self, tasks: TaskGroup) -> None:
        if self._ocean.at_work >= MOST_AT_WORK and self._begun is None:
            with anyio.CancelScope() as self._asleep:
                await self._coordinator.room_for_ticks(MOST_AT_WORK)
            return
        seen = self._ocean.commits_seen()
        results = await self._turn(tasks)
        if results:
            self._has_looked_again = False
            return
        agenda = None if results is None and self._rest_ms else await self._guarded(self._ocean.agenda)
        with anyio.CancelScope() as self._asleep:
            if self._is_stopping:
                return
            if agenda is None:
                await sleep(self._ocean.clock, self._rest_ms)
            else:
                await self._sleep(seen, self._wake_at(agenda))

    async def _turn(self, tasks: TaskGroup) -> list[TickResult] | None:
        """Poke, and return what was done; None if it failed, or if handlers take longer than the budget.

        They go on in their task: waiting for them would delay everything that becomes due meanwhile.
        """
        begun, self._begun = self._begun, None
        poke = begun or self._coordinator.new_poke(
            self._budget_ms, "ticker", concurrency=MOST_AT_WORK - self._ocean.at_work
        )
        self.pokes += 1
        is_over = anyio.Event()
        done: list[list[TickResult] | None] = []

        async def perform() -> None:
            results = await self._guarded(partial(self._coordinator.perform, poke))
            self.ticks += len(results or ())
            done.append(results)
            is_over.set()

        tasks.start_soon(perform)
        cancel = self._ocean.clock.call_later(self._budget_ms, is_over.set)
        await is_over.wait()
        cancel()
        return done[0] if done else None

    async def _guarded(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return None if it fails: a busy or broken database must not end the ticker unnoticed."""
        try:
            result = await ask()
        except StoreUnusable:
            self.stop()
            return None
        except Exception as error:
            if not isinstance(error, StoreBusy):
                log.exception("a poke failed; the next one follows by itself")
            self._rest_ms = min(max(2 * self._rest_ms, AGAIN_MS), LONGEST_REST_MS)
            return None
        self._rest_ms = 0
        return result

    def _wake_at(self, agenda: Agenda) -> int | None:
        if not agenda.due_now:
            self._has_looked_again = False
            return agenda.next_wake_at
        if not self._has_looked_again:
            # It may have become due just after the claim.
            self._has_looked_again = True
            return self._ocean.clock.now()
        # Due but not claimable: another process has it. Its commit is noticed; this is in case that process dies.
        return max(agenda.next_wake_at or 0, self._ocean.clock.now() + AGAIN_MS)

    async def _sleep(self, seen: int, wake_at: int | None) -> None:
        while self._ocean.commits_seen() == seen:
            left = LONGEST_NAP_MS if wake_at is None else wake_at - self._ocean.clock.now()
            if left <= 0:
                return
            room = MOST_AT_WORK - self._ocean.at_work
            order = self._coordinator.claim_ahead(room, self._has_begun, self._budget_ms, "ticker")
            try:
                await self._ocean.next_change(seen, wait_ms=min(left, LONGEST_NAP_MS), look_ms=self._look_ms)
            finally:
                if order is not None:
                    await order.withdraw()

    def _has_begun(self, advance: Advance) -> None:
        self._begun = advance

    def stop(self) -> None:
        """Claim nothing more. Handlers that are running go on to their commit."""
        self._is_stopping = True
        self._asleep.cancel()


@asynccontextmanager
async def ticker(
    ocean: Kernel, *, budget_ms: int = 1_000, look_ms: int = 1_000, grace_ms: int = 10_000
) -> AsyncIterator[Ticker]:
    """Poke in the background for as long as the block lasts.

    At its end running handlers have `grace_ms` to finish; then they are cancelled and their runs are given back.
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
            # A second Ctrl-C. Their runs are given back before the Ocean is closed.
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            relent()


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
