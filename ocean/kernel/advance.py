"""The loop of a poke: claim what is due, call each clog once, commit; until nothing is due or the budget is spent."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio
import anyio.lowlevel

from ocean.kernel.poke_sources import PokeSource
from ocean.kernel.store.claims import ClaimAsk
from ocean.kernel.tick_run import Runtime, TickWork, commit_or_time
from ocean.state.records import Claim, RunStatus, TickResult

LOOK_MS = 20
LOOKS = 5
"""While handlers take long: how often a poke looks whether there were commits, and after how many looks it claims
anyway, for what is due by the time alone."""
AT_REST = (RunStatus.IDLE, RunStatus.DONE, RunStatus.FAILED)


class Advance:
    """One poke. `until` bounds claiming; handlers that have started go on to their own time limit."""

    def __init__(
        self,
        runtime: Runtime,
        ask: ClaimAsk,
        until: int,
        max_ticks: int | None,
        concurrency: int,
        source: PokeSource,
        tick_is_over: Callable[[TickResult], None],
    ) -> None:
        self._runtime = runtime
        self.source = source
        self.ask = ask
        self._until = until
        self._ticks_left = max_ticks
        self._room = concurrency
        self._tick_is_over = tick_is_over
        self._works: dict[asyncio.Task[None], TickWork] = {}
        self._moved = anyio.Event()
        # Whether anything can have become due since the last look, other than by what is on its way to a commit.
        self._may_be_due = True
        self._taken_all: int | None = None
        self._error: Exception | None = None
        self.results: list[TickResult] = []
        self.claims = 0

    def begin(self, claims: Sequence[Claim]) -> None:
        """Work on what was claimed by a transaction that nobody has heard of yet. `run` or `abandon` is to follow."""
        for claim in claims:
            self._begin(claim, claim.claimed_at)
        # Whoever made them took all that was due: there is nothing to look for before one of them is over. Nor with
        # its commit, if it is only one, until somebody has committed after it. Where there are several, more may come.
        self._may_be_due = False
        if len(claims) == 1:
            self._taken_all = self._runtime.store.commits_seen() + 1

    async def run(self) -> None:
        # The loop is a task of a group: a caller's native cancellation reaches it as the group's own, which the
        # store's shield holds off until a claim under way is known, and can be given back.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._loop)
        if self._error is not None:
            raise self._error

    async def _loop(self) -> None:
        try:
            await self._rounds()
            await self._none_at_work()
        finally:
            # If this was cancelled, somebody is left.
            await self.abandon()

    async def abandon(self) -> None:
        """Stop the handlers that are at work, and give their runs back."""
        for work in self._works.values():
            work.stop()
        with anyio.CancelScope(shield=True):
            await self._none_at_work()

    async def _none_at_work(self) -> None:
        while self._works:
            self._moved = anyio.Event()
            await self._moved.wait()

    async def _rounds(self) -> None:
        try:
            if self._works:
                # Quick ones are on their way to their commit before anybody looks for more.
                await anyio.lowlevel.checkpoint()
            while self._error is None and await self._round():
                pass
        except Exception as error:
            # Handlers at work go on to their commit; the error is raised after them.
            self._error = error

    async def _round(self) -> bool:
        """Claim and wait for a handler or a commit to be over; False when there is nothing left to do."""
        self._moved = anyio.Event()
        piggyback, self._may_be_due = bool(self._works) and not self._may_be_due, False
        seen, sent_at = self._runtime.store.commits_seen(), self._runtime.clock.now()
        claimed = await self._claim(sent_at, piggyback)
        # Also when the last one has finished during the claim, which may not have seen what it made due.
        if self._works or self._moved.is_set():
            await self._movement(seen)
            return bool(self._works) or not self._has_come_to_rest()
        return bool(claimed) or await self._waited_for_the_run(seen, sent_at)

    async def _movement(self, seen: int) -> None:
        """Until a handler or a commit is over; or until something may have become due beside handlers that take long:
        by a commit of somebody else's, or by the time."""
        if not self.may_claim or self.ask.run_id is not None:
            await self._moved.wait()
            return
        self._look_later(seen, LOOKS)
        try:
            await self._moved.wait()
        finally:
            self._cancel_look()

    def _look_later(self, seen: int, looks_left: int) -> None:
        self._cancel_look = self._runtime.clock.call_later(LOOK_MS, partial(self._look, seen, looks_left - 1))

    def _look(self, seen: int, looks_left: int) -> None:
        if looks_left and self._runtime.store.commits_seen() == seen:
            self._look_later(seen, looks_left)
            return
        self._may_be_due = True
        self._moved.set()

    @property
    def may_claim(self) -> bool:
        """Whether this poke claims more: it has room and time."""
        return self._room > 0 and self._ticks_left != 0 and self._runtime.clock.now() < self._until

    async def _claim(self, sent_at: int, piggyback: bool) -> int:
        """If only handlers are over since the last time, and no commit: with what is committed anyway, or not now."""
        if not self.may_claim or (piggyback and self._runtime.store.commits_seen() == self._taken_all):
            return 0
        room = self._room if self._ticks_left is None else min(self._room, self._ticks_left)
        ask = replace(self.ask, limit=room, slot=self.ask.slot + self.claims, piggyback=piggyback)
        claims = await self._runtime.store.claim_due(ask)
        if self._ticks_left is not None:
            self._ticks_left -= len(claims)
        for claim in claims:
            self._begin(claim, sent_at)
        return len(claims)

    def _begin(self, claim: Claim, sent_at: int) -> None:
        """In a task of its own, whose end is noticed whatever it is."""
        self.claims += 1
        self._room -= 1
        work = TickWork(self._runtime, claim, sent_at, self._has_room)
        task = asyncio.get_running_loop().create_task(self._work(work))
        self._works[task] = work
        task.add_done_callback(self._is_over)

    def _has_room(self) -> None:
        """A handler is over. Its commit takes no room: what comes next may be claimed by the same transaction."""
        self._room += 1
        self._moved.set()

    def _is_over(self, task: asyncio.Task[None]) -> None:
        del self._works[task]
        self._may_be_due = True
        self._moved.set()

    async def _work(self, work: TickWork) -> None:
        try:
            with self._runtime.observed.ticking(work.claim, self.source) as seen:
                result = await work.run(seen)
                seen.outcome = result.outcome
            self.results.append(result)
            self._tick_is_over(result)
        except Exception as error:
            # Told before it is given back: nobody claims any more then, this one again least of all.
            self._error = self._error or error
            with suppress(Exception):
                await work.give_back()
        except BaseException:
            await work.give_back()
            raise
        finally:
            work.close()

    def _has_come_to_rest(self) -> bool:
        """The one run asked for has nothing due: its last commit has said so."""
        return self.ask.run_id is not None and bool(self.results) and self.results[-1].status in AT_REST

    async def _waited_for_the_run(self, seen: int, sent_at: int) -> bool:
        """A named run is waited for while another holds it, within the budget."""
        if self.ask.run_id is None or self._ticks_left == 0:
            return False
        run = await self._runtime.store.get_run(self.ask.run_id)
        left = self._until - self._runtime.clock.now()
        if run is None or left <= 0:
            return False
        if run.status is not RunStatus.ACTIVE or run.lock_expires_at is None:
            # It may have been at work when the claim looked, and be due since.
            return self._runtime.store.commits_seen() != seen
        if run.lock_expires_at <= sent_at:
            return False
        lapses_in = max(run.lock_expires_at - self._runtime.clock.now(), 0)
        await commit_or_time(self._runtime.store, self._runtime.clock, seen, min(left, lapses_in))
        return True
