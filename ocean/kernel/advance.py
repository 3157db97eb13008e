"""The loop of a poke: claim what is due, call each clog once, commit, until nothing is due or the budget is spent."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import anyio
import anyio.lowlevel

from ocean.kernel.poke_sources import PokeSource
from ocean.kernel.runtime import Runtime
from ocean.kernel.shutdown import UNWIND_MS, TickAtWork
from ocean.kernel.store.claims import ClaimAsk
from ocean.kernel.tick_run import TickWork
from ocean.state.records import Claim, RunStatus, TickResult

LOOK_MS = 20
LOOKS = 5
"""While handlers are slow, a poke checks for commits every `LOOK_MS`. After `LOOKS` checks without one it claims:
time alone may have made something due."""
AT_REST = (RunStatus.IDLE, RunStatus.DONE, RunStatus.FAILED)


class Advance:
    """One poke. It claims until `until`; handlers that have started run to their own time limit."""

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
        self._at_rest = anyio.Event()
        # Whether anything may have become due since the last claim, other than by commits that are in flight.
        self._may_be_due = True
        self._taken_all: int | None = None
        self._error: Exception | None = None
        self._is_claiming = self._is_abandoned = False
        self.is_out_of_time = False
        """Whether the caller's `hard_ms` has ended it. Only then a run that it gives back may spend an attempt."""
        self.results: list[TickResult] = []
        self.claims = 0

    def begin(self, claims: Sequence[Claim]) -> None:
        """Start on claims whose transaction has just committed. The caller must then call `run` or `abandon`."""
        for claim in claims:
            self._begin(claim, claim.claimed_at)
        # That transaction claimed all that was due, so the next claim can wait for the end of one of these ticks. If
        # there is only one, its own commit makes no claim necessary either, until there is another commit after it.
        self._may_be_due = False
        if len(claims) == 1:
            self._taken_all = self._runtime.store.commits_seen() + 1

    async def run(self) -> None:
        """Claim and call until there is nothing left to do, then wait for the handlers that are running."""
        # The loop is a task of a group, so that a native cancellation of the caller reaches it as that of the group.
        # The store's shield delays it until the result of a claim in flight is known, and the claim can be given back.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._loop)
        if self._error is not None:
            raise self._error

    async def _loop(self) -> None:
        try:
            await self._rounds()
            await self._none_at_work()
        finally:
            # Handlers are left only if this was cancelled.
            await self.abandon()

    async def abandon(self) -> None:
        """Stop the handlers that are running, and give their runs back, even if a handler does not end."""
        self._is_abandoned = True
        if not self._works:
            return
        for work in self._works.values():
            work.stop(counts=self.is_out_of_time)
        with anyio.CancelScope(shield=True):
            # In real time: it is the bound for code that is broken, under any clock.
            with anyio.move_on_after(UNWIND_MS / 1_000):
                await self._none_at_work()
            for task, work in list(self._works.items()):
                self._runtime.shutdown.leave(task)
                await work.leave()
                self.results.append(TickResult(work.claim.run.run_id, work.claim.tick, "given_back", None))
                self._is_over(task)

    def ticks(self) -> list[TickAtWork]:
        """Return the ticks whose handlers are running."""
        claims = [work.claim for work in self._works.values()]
        return [TickAtWork(claim.run.clog_id, claim.run.run_id, claim.tick) for claim in claims]

    async def _none_at_work(self) -> None:
        while self._works:
            # Not `_moved`, which the loop replaces while a stop waits here.
            if self._at_rest.is_set():
                self._at_rest = anyio.Event()
            await self._at_rest.wait()

    async def _rounds(self) -> None:
        try:
            if self._works:
                # Let quick handlers reach their commit before the first claim.
                await anyio.lowlevel.checkpoint()
            while self._error is None and await self._round():
                pass
        except Exception as error:
            # Running handlers go on to their commit; the error is raised after that.
            self._error = error

    async def _round(self) -> bool:
        """Claim, then wait for the end of a handler or a commit. Return False when there is nothing left to do."""
        self._moved = anyio.Event()
        piggyback, self._may_be_due = bool(self._works) and not self._may_be_due, False
        seen, sent_at = self._runtime.store.commits_seen(), self._runtime.clock.now()
        claimed = await self._claim(sent_at, piggyback)
        # Also if the last tick ended during the claim, which may not have seen what that tick made due.
        if self._works or self._moved.is_set():
            await self._movement(seen)
            return bool(self._works) or not self._has_come_to_rest()
        return bool(claimed) or await self._waited_for_the_run(seen, sent_at)

    async def _movement(self, seen: int) -> None:
        """Wait for the end of a handler or a commit; or, while handlers are slow, until something may have become due,
        by another commit or because its time has come."""
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
    def has_begun(self) -> bool:
        """Whether it has ticks at work."""
        return bool(self._works)

    @property
    def may_claim(self) -> bool:
        """Whether this poke claims more: it has room and time."""
        if self._is_abandoned or self._runtime.shutdown.has_ended_claims_of(self.source):
            return False
        if self._runtime.probation.is_closed and self.ask.run_id is None:
            # Another process may call what would have to wait here.
            return False
        return self._room > 0 and self._ticks_left != 0 and self._runtime.clock.now() < self._until

    async def _claim(self, sent_at: int, piggyback: bool) -> int:
        """Claim; with `piggyback`, only as part of a transaction that is made anyway."""
        if not self.may_claim or (piggyback and self._runtime.store.commits_seen() == self._taken_all):
            return 0
        room = self._room if self._ticks_left is None else min(self._room, self._ticks_left)
        ask = replace(self.ask, limit=room, slot=self.ask.slot + self.claims, piggyback=piggyback)
        self._is_claiming = True
        self._runtime.shutdown.add(self)
        try:
            claims = await self._runtime.store.claim_due(ask)
            if self._ticks_left is not None:
                self._ticks_left -= len(claims)
            for claim in claims:
                self._begin(claim, sent_at)
        finally:
            self._is_claiming = False
            self._note_rest()
        return len(claims)

    def _note_rest(self) -> None:
        if not self._works and not self._is_claiming:
            self._runtime.shutdown.remove(self)

    def _begin(self, claim: Claim, sent_at: int) -> None:
        """Start a tick in its own task. Its end is noticed, however it ends."""
        self.claims += 1
        self._room -= 1
        work = TickWork(self._runtime, claim, sent_at, self._has_room)
        task = asyncio.get_running_loop().create_task(self._work(work))
        self._works[task] = work
        self._runtime.shutdown.add(self)
        task.add_done_callback(self._is_over)
        if self._runtime.shutdown.has_ended_claims_of(self.source):
            # The claim was in flight when the stop began.
            work.stop(counts=False)

    def _has_room(self) -> None:
        """A handler has ended. Its commit does not count: the same transaction may claim the next run."""
        self._room += 1
        self._moved.set()

    def _is_over(self, task: asyncio.Task[None]) -> None:
        self._works.pop(task, None)
        if not self._works:
            self._at_rest.set()
        self._note_rest()
        self._may_be_due = True
        self._moved.set()

    async def _work(self, work: TickWork) -> None:
        try:
            with self._runtime.observed.ticking(work.claim, self.source) as seen:
                result = await work.run(seen)
                seen.ended_as(result.outcome)
            if not work.is_left:
                self.results.append(result)
                self._tick_is_over(result)
        except Exception as error:
            # Set before the run is given back, so that this poke does not claim it again.
            self._error = self._error or error
            with suppress(Exception):
                # Counted: a run whose commit always fails must not be called without end.
                await work.give_back(counts=True)
        except BaseException:
            await work.give_back()
            raise
        finally:
            work.close()

    def _has_come_to_rest(self) -> bool:
        """Whether the named run has nothing due, according to its last commit."""
        return self.ask.run_id is not None and bool(self.results) and self.results[-1].status in AT_REST

    async def _waited_for_the_run(self, seen: int, sent_at: int) -> bool:
        """Wait, within the budget, for a named run that another process holds. False if there is no reason to."""
        if self.ask.run_id is None or self._ticks_left == 0 or self._runtime.shutdown.has_ended_claims_of(self.source):
            return False
        run = await self._runtime.store.get_run(self.ask.run_id)
        left = self._until - self._runtime.clock.now()
        if run is None or left <= 0:
            return False
        if run.status is not RunStatus.ACTIVE or run.lock_expires_at is None:
            # It may have been active during the claim and have become due since.
            return self._runtime.store.commits_seen() != seen
        if run.lock_expires_at <= sent_at:
            return False
        lapses_in = max(run.lock_expires_at - self._runtime.clock.now(), 0)
        with anyio.CancelScope() as scope, self._runtime.shutdown.calling(scope.cancel):
            await self._runtime.commit_or_time(seen, min(left, lapses_in))
        return True
