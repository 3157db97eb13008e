"""One claimed tick: call the handler, commit, repeat after a conflict, stop when the lock is lost."""

import logging
from collections.abc import Callable
from contextlib import suppress

import anyio

from ocean.clog.clog import Clog
from ocean.kernel.call_context import CallContext
from ocean.kernel.invoke import call_handler, storable
from ocean.kernel.locks import HeldLock
from ocean.kernel.metrics import TickSeen, Why
from ocean.kernel.runtime import Runtime, commit_or_time
from ocean.kernel.store.claims import Committed, Contended, TickAnswer, TickCommit
from ocean.kernel.store.runs import Behind
from ocean.kernel.tick import Tick
from ocean.state.counters import Taken
from ocean.state.effects import Effects
from ocean.state.errors import LockLost, OceanError, StoreBusy, StoreFailed
from ocean.state.outcomes import ErrorInfo, Ok, Outcome, Retry, error_info, outcome_name
from ocean.state.records import Caller, Claim, RunStatus, TickResult

COMMIT_TRIES = 3

log = logging.getLogger("ocean.kernel")


def context_of(runtime: Runtime, claim: Claim, call: int, *, is_dry: bool = False) -> CallContext:
    """Return the context of one call of a claimed tick."""
    now = runtime.clock.now()
    return CallContext(
        store=runtime.store,
        registry=runtime.registry,
        clock=runtime.clock,
        run=claim.run,
        session_id=claim.run.session_id,
        seed=f"{claim.run_key}:{claim.tick}",
        run_key=claim.run_key,
        reason=claim.reason,
        now=now,
        deadline=now + runtime.registry.get(claim.run.clog_id).tick_ms,
        caller=Caller(claim.inputs[0].actor if claim.inputs else None),
        lock=claim.lock,
        tick=claim.tick,
        call=call,
        inputs=claim.inputs,
        reach=runtime.reach,
        is_dry=is_dry,
    )


async def outcome_of(context: CallContext, clog: Clog, limit: anyio.CancelScope) -> Outcome:
    """Call the clog's handler for this tick, until its time limit or until `limit` is cancelled."""
    handler = clog.end_handler if context.run is not None and context.run.ending else clog.handler
    if handler is None:
        return Ok()
    outcome: Outcome | None = None
    with limit:
        cancel = context.clock.call_later(clog.tick_ms, limit.cancel)
        try:
            outcome = await call_handler(handler, Tick(context, clog))
        finally:
            cancel()
            context.is_over = True
    if outcome is None or context.clock.now() >= context.deadline:
        return Retry(ErrorInfo("tick_timeout", f"the handler took longer than {clog.tick_ms} ms"))
    return outcome


class Stopped(Exception):
    """The poke was cancelled: the run is to be given back."""


class TickWork:
    """One claimed tick. `when_called` is called once: when the handler has first returned, or never will."""

    def __init__(self, runtime: Runtime, claim: Claim, sent_at: int, when_called: Callable[[], None]) -> None:
        self._runtime = runtime
        self.claim = claim
        self._when_called: Callable[[], None] | None = when_called
        self._clog = runtime.registry.get(claim.run.clog_id)
        self._scope: anyio.CancelScope | None = None
        self._is_lost = False
        self._is_stopped = False
        self._is_ending = False
        self.is_left = False
        self._counts = False
        self._sent_at = sent_at
        self._held: HeldLock | None = None
        self._context: CallContext | None = None
        self._refused: dict[str, Taken] = {}

    def _lose(self) -> None:
        self._is_lost = True
        self._runtime.probation.leave(self.claim)
        if self._context is not None:
            self._context.is_lost = True
        if self._scope is not None:
            self._scope.cancel()

    def _end(self) -> None:
        """The run is ending: let steps in flight finish, then give the run back for its last tick."""
        self._is_ending = True
        if self._context is not None:
            self._context.end()
        elif self._scope is not None:
            self._scope.cancel()

    def stop(self, *, counts: bool) -> None:
        """Cancel the handler and give the run back. A tick whose handler has returned is still committed.

        `counts` is whether the third time in a tick is a failed attempt.
        """
        self._is_stopped, self._counts = True, counts
        if self._scope is not None:
            self._scope.cancel()

    async def leave(self) -> None:
        """Give the run back although its handler, which ignores that it was cancelled, is still executing."""
        self.is_left = True
        self._lose()
        self.close()
        try:
            await self._runtime.store.give_back(self.claim.lock, self.claim.tick, counts=self._counts)
        except Exception as error:
            log.warning("run %s stays locked until its lock expires (%s)", self.claim.run.run_id, type(error).__name__)

    def close(self) -> None:
        """Stop renewing the lock. Dropping the reference breaks a cycle, so the garbage collector has less to do."""
        self._note_called()
        held, self._held = self._held, None
        if held is not None:
            self._runtime.keeper.release(held)

    async def run(self, seen: TickSeen) -> TickResult:
        """Run the tick to its commit. The caller gives the run back if this raises, and closes it in any case."""
        claim = self.claim
        self._held = self._runtime.keeper.hold(claim.lock, self._sent_at, self._lose, self._end)
        try:
            await self._begin()
            try:
                status, outcome = await self._call_and_commit(seen)
            finally:
                self._runtime.probation.leave(claim)
            return TickResult(claim.run.run_id, claim.tick, outcome, status)
        except LockLost:
            if self.is_left:
                return TickResult(claim.run.run_id, claim.tick, "given_back", None)
            # If the run is ending, the lock is still held: its last tick need not wait until the grace time is over.
            if self._is_lost or await self.give_back() is None:
                return TickResult(claim.run.run_id, claim.tick, "lock_lost", None)
            return TickResult(claim.run.run_id, claim.tick, "given_back", None)
        except Stopped:
            await self.give_back()
            return TickResult(claim.run.run_id, claim.tick, "given_back", None)

    async def _begin(self) -> None:
        """Wait until the call may begin: at once, unless there are suspects of a crash."""
        with anyio.CancelScope() as self._scope:
            await self._runtime.probation.enter(self.claim)
        if self._scope.cancelled_caught:
            self._check_not_stopped()

    def _note_called(self) -> None:
        callback, self._when_called = self._when_called, None
        if callback is not None:
            callback()

    async def give_back(self, *, counts: bool = False) -> RunStatus | None:
        """Give the run back, once. Returns None if the lock was lost before."""
        if self.is_left:
            return None
        with anyio.CancelScope(shield=True):
            return await self._runtime.store.give_back(self.claim.lock, self.claim.tick, counts=counts or self._counts)
        return None

    async def _call_and_commit(self, seen: TickSeen) -> tuple[RunStatus | None, str]:
        call = self.claim.call
        while True:
            outcome, effects = await self._call(call)
            self._note_called()
            answer, outcome = await self._commit(call, outcome, effects)
            if isinstance(answer, Committed):
                outcome = answer.instead or outcome
                seen.failed_as(outcome, answer, self._context.failed_step if self._context is not None else None)
                return answer.status, outcome_name(outcome)
            why: Why = "counters" if answer.refused else "rows"
            self._runtime.observed.conflicted(self._clog.clog_id, "tick", why, self.claim.run.run_id, self.claim.tick)
            call = seen.call = answer.call
            self._refused |= answer.refused
            if answer.must_take_turn:
                await self._take_turn(effects)

    async def _call(self, call: int) -> tuple[Outcome, Effects]:
        self._check_not_stopped()
        context = self._context = context_of(self._runtime, self.claim, call)
        context.refused = self._refused
        limit = self._scope = anyio.CancelScope()
        context.stop_call = limit.cancel
        try:
            outcome = await outcome_of(context, self._clog, limit)
        except BaseException:
            with suppress(Exception):
                await context.flush()
            raise
        if limit.cancelled_caught or self.is_left:
            self._check_not_stopped()
        await context.flush()
        return outcome, Effects() if isinstance(outcome, Retry) else context.effects

    def _check_not_stopped(self) -> None:
        if self._is_lost:
            raise LockLost(f"run {self.claim.run.run_id} was taken over; this call's work is discarded")
        if self._is_stopped or self._is_ending:
            raise Stopped

    async def _commit(self, call: int, outcome: Outcome, effects: Effects) -> tuple[Committed | Contended, Outcome]:
        """Commit. If the commit is refused, commit a failed attempt instead."""
        try:
            return await self._commit_in_turn(call, outcome, effects), outcome
        except (LockLost, StoreBusy, StoreFailed):
            raise
        except OceanError as error:
            failed = Retry(storable(error_info(error)))
        except Exception as error:
            if not any(write.apply for write in effects.writes):
                raise
            failed = Retry(storable(error_info(error)))
        return await self._commit_in_turn(call, failed, Effects()), failed

    async def _commit_in_turn(self, call: int, outcome: Outcome, effects: Effects) -> Committed | Contended:
        claim = self.claim
        commit = TickCommit(
            lock=claim.lock,
            clog_id=self._clog.clog_id,
            tick=claim.tick,
            call=call,
            outcome=outcome,
            effects=effects,
            instance_id=self._runtime.instance_id,
            version=self._clog.version,
            claimed_at=claim.claimed_at,
        )
        while True:
            seen = self._runtime.store.commits_seen()
            answer = await self._send(commit)
            if not isinstance(answer, Behind):
                return answer
            await self._wait_for_others(seen)

    async def _send(self, commit: TickCommit) -> TickAnswer:
        """Commit, and repeat it if the database is busy: a finished call is too costly to lose. Repeating is safe."""
        for _ in range(COMMIT_TRIES - 1):
            try:
                return await self._runtime.store.commit_tick(commit)
            except StoreBusy:
                continue
        return await self._runtime.store.commit_tick(commit)

    async def _take_turn(self, effects: Effects) -> None:
        while True:
            seen = self._runtime.store.commits_seen()
            if await self._runtime.store.take_turn(self.claim.lock, effects.contested_keys):
                return
            await self._wait_for_others(seen)

    async def _wait_for_others(self, seen: int) -> None:
        """Wait for a commit of another tick, unless this tick has been stopped or has lost its lock."""
        with anyio.CancelScope() as self._scope:
            await commit_or_time(self._runtime.store, self._runtime.clock, seen, self.claim.lock.lock_ms)
        self._check_not_stopped()
