"""The loop of a poke: claim what is due, call each clog once, commit; until nothing is due or the budget is spent."""

from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from ocean.kernel.calling import call_handler
from ocean.kernel.clock import Clock
from ocean.kernel.clog import Clog, Registry
from ocean.kernel.counters import Taken
from ocean.kernel.effects import Effects
from ocean.kernel.errors import LockLost, OceanError, StoreBusy, StoreFailed
from ocean.kernel.locks import Held, LockKeeper
from ocean.kernel.observing import Observations, TickSeen, Why
from ocean.kernel.outcomes import ErrorInfo, Ok, Outcome, Retry, error_info, outcome_name
from ocean.kernel.poke_sources import PokeSource
from ocean.kernel.reaching import Reach
from ocean.kernel.records import Caller, Claim, RunStatus, TickResult
from ocean.kernel.scene import Scene
from ocean.kernel.store import Behind, ClaimableClog, ClaimAsk, Committed, Contended, Store, TickAnswer, TickCommit
from ocean.kernel.tick import Tick

COMMIT_TRIES = 3
AT_REST = (RunStatus.IDLE, RunStatus.DONE, RunStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Crew:
    """What the work of one instance needs."""

    store: Store
    registry: Registry
    clock: Clock
    keeper: LockKeeper
    instance_id: str
    lock_ms: int
    reach: Reach
    observed: Observations

    def claimable(self, clog_ids: Collection[str] | None) -> dict[str, ClaimableClog]:
        return {
            clog.clog_id: ClaimableClog(clog.clog_id, clog.lock_ms or self.lock_ms, clog.version, clog.takes_all_inputs)
            for clog in self.registry
            if clog.handler is not None and (clog_ids is None or clog.clog_id in clog_ids)
        }


class Advance:
    """One poke. `until` bounds claiming; handlers that have started go on to their own time limit."""

    def __init__(
        self, crew: Crew, ask: ClaimAsk, until: int, max_ticks: int | None, concurrency: int, source: PokeSource
    ) -> None:
        self._crew = crew
        self._source = source
        self._ask = ask
        self._until = until
        self._ticks_left = max_ticks
        self._room = concurrency
        self._at_work = 0
        self._finished = anyio.Event()
        self._error: Exception | None = None
        self.results: list[TickResult] = []
        self.claims = 0

    async def run(self) -> None:
        # The loop is a task of the group: a caller's native cancellation reaches it as the group's own, which the
        # store's shield holds off until a claim under way is known, and can be given back.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._loop, tasks)
        if self._error is not None:
            raise self._error

    async def _loop(self, tasks: TaskGroup) -> None:
        try:
            while self._error is None and await self._round(tasks):
                pass
        except Exception as error:
            # Handlers at work go on to their commit; the error is raised after them.
            self._error = error

    async def _round(self, tasks: TaskGroup) -> bool:
        """Claim and wait for something to finish; False when there is nothing left to do."""
        self._finished = anyio.Event()
        seen, sent_at = self._crew.store.commits_seen(), self._crew.clock.now()
        claimed = await self._claim(tasks, sent_at)
        # Also when the last one has finished during the claim, which may not have seen what it made due.
        if self._at_work or self._finished.is_set():
            await self._finished.wait()
            # Commits of one group come back together: let all of them free their room first.
            await anyio.lowlevel.checkpoint()
            return self._at_work > 0 or not self._has_come_to_rest()
        return bool(claimed) or await self._waited_for_the_run(seen, sent_at)

    async def _claim(self, tasks: TaskGroup, sent_at: int) -> int:
        room = self._room if self._ticks_left is None else min(self._room, self._ticks_left)
        if room <= 0 or sent_at >= self._until:
            return 0
        ask = replace(self._ask, limit=room, slot=self._ask.slot + self.claims)
        claims = await self._crew.store.claim_due(ask)
        self.claims += len(claims)
        self._room -= len(claims)
        self._at_work += len(claims)
        if self._ticks_left is not None:
            self._ticks_left -= len(claims)
        for claim in claims:
            tasks.start_soon(self._work, claim, sent_at)
        return len(claims)

    async def _work(self, claim: Claim, sent_at: int) -> None:
        try:
            with self._crew.observed.ticking(claim, self._source) as seen:
                result = await TickWork(self._crew, claim, sent_at, seen).run()
                seen.outcome = result.outcome
            self.results.append(result)
        except Exception as error:
            self._error = self._error or error
        except BaseException:
            self.results.append(TickResult(claim.run.run_id, claim.tick, "given_back", None))
            raise
        finally:
            self._room += 1
            self._at_work -= 1
            self._finished.set()

    def _has_come_to_rest(self) -> bool:
        """The one run asked for has nothing due: its last commit has said so."""
        return self._ask.run_id is not None and bool(self.results) and self.results[-1].status in AT_REST

    async def _waited_for_the_run(self, seen: int, sent_at: int) -> bool:
        """A named run is waited for while another holds it, within the budget."""
        if self._ask.run_id is None or self._ticks_left == 0:
            return False
        run = await self._crew.store.get_run(self._ask.run_id)
        left = self._until - self._crew.clock.now()
        if run is None or run.status is not RunStatus.ACTIVE or left <= 0 or run.lock_expires_at is None:
            return False
        if run.lock_expires_at <= sent_at:
            return False
        lapses_in = max(run.lock_expires_at - self._crew.clock.now(), 0)
        await commit_or_time(self._crew.store, self._crew.clock, seen, min(left, lapses_in))
        return True


async def commit_or_time(store: Store, clock: Clock, seen: int, ms: int, look_ms: int = 100) -> None:
    """Wait for the next commit that anybody makes, at most `ms`."""
    with anyio.CancelScope() as scope:
        cancel = clock.call_later(ms, scope.cancel)
        try:
            await store.next_commit(seen, look_ms)
        finally:
            cancel()


def scene_of(crew: Crew, claim: Claim, call: int, *, is_dry: bool = False) -> Scene:
    """The stage of one call of a claimed tick."""
    now = crew.clock.now()
    return Scene(
        store=crew.store,
        registry=crew.registry,
        clock=crew.clock,
        run=claim.run,
        session_id=claim.run.session_id,
        seed=f"{claim.run_key}:{claim.tick}",
        run_key=claim.run_key,
        reason=claim.reason,
        now=now,
        deadline=now + crew.registry.get(claim.run.clog_id).tick_ms,
        caller=Caller(claim.inputs[0].actor if claim.inputs else None),
        lock=claim.lock,
        tick=claim.tick,
        call=call,
        inputs=claim.inputs,
        reach=crew.reach,
        is_dry=is_dry,
    )


async def outcome_of(scene: Scene, clog: Clog) -> Outcome:
    """Call the clog's handler for this tick, within its time limit."""
    handler = clog.end_handler if scene.run is not None and scene.run.ending else clog.handler
    if handler is None:
        return Ok()
    too_late: Outcome = Retry(ErrorInfo("tick_timeout", f"the handler took longer than {clog.tick_ms} ms"))
    outcome = too_late
    with anyio.CancelScope() as limit:
        cancel = scene.clock.call_later(clog.tick_ms, limit.cancel)
        try:
            outcome = await call_handler(handler, Tick(scene, clog))
        finally:
            cancel()
            scene.is_over = True
    return too_late if scene.clock.now() >= scene.deadline else outcome


class TickWork:
    """One claimed tick, from its call to its commit, over conflicts and lost locks."""

    def __init__(self, crew: Crew, claim: Claim, sent_at: int, seen: TickSeen) -> None:
        self._crew = crew
        self._claim = claim
        self._seen = seen
        self._clog = crew.registry.get(claim.run.clog_id)
        self._scope = anyio.CancelScope()
        self._held: Held = crew.keeper.hold(claim.lock, sent_at, self._lost)
        self._scene: Scene | None = None
        self._refused: dict[str, Taken] = {}

    def _lost(self) -> None:
        if self._scene is not None:
            self._scene.is_lost = True
        self._scope.cancel()

    async def run(self) -> TickResult:
        claim = self._claim
        try:
            with self._scope:
                status, outcome = await self._call_and_commit()
                return TickResult(claim.run.run_id, claim.tick, outcome, status)
            return TickResult(claim.run.run_id, claim.tick, "lock_lost", None)
        except LockLost:
            return TickResult(claim.run.run_id, claim.tick, "lock_lost", None)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._crew.store.give_back(claim.lock, claim.tick)
            raise
        finally:
            self._crew.keeper.release(self._held)

    async def _call_and_commit(self) -> tuple[RunStatus | None, str]:
        call = self._claim.call
        while True:
            outcome, effects = await self._call(call)
            answer, outcome = await self._commit(call, outcome, effects)
            if isinstance(answer, Committed):
                outcome = answer.instead or outcome
                self._seen.failed_as(outcome)
                return answer.status, outcome_name(outcome)
            why: Why = "counters" if answer.refused else "rows"
            self._crew.observed.conflicted(self._clog.clog_id, "tick", why, self._claim.run.run_id, self._claim.tick)
            call = self._seen.call = answer.call
            self._refused |= answer.refused
            if answer.must_take_turn:
                await self._take_turn(effects)

    async def _call(self, call: int) -> tuple[Outcome, Effects]:
        scene = self._scene = scene_of(self._crew, self._claim, call)
        scene.refused = self._refused
        try:
            outcome = await outcome_of(scene, self._clog)
        except BaseException:
            with suppress(Exception):
                await scene.settle()
            raise
        await scene.settle()
        return outcome, Effects() if isinstance(outcome, Retry) else scene.effects

    async def _commit(self, call: int, outcome: Outcome, effects: Effects) -> tuple[Committed | Contended, Outcome]:
        """Commit, or turn what the commit refuses into a failed attempt."""
        try:
            return await self._commit_in_turn(call, outcome, effects), outcome
        except (LockLost, StoreBusy, StoreFailed):
            raise
        except OceanError as error:
            failed = Retry(error_info(error))
        except Exception as error:
            if not any(write.apply for write in effects.writes):
                raise
            failed = Retry(error_info(error))
        return await self._commit_in_turn(call, failed, Effects()), failed

    async def _commit_in_turn(self, call: int, outcome: Outcome, effects: Effects) -> Committed | Contended:
        claim = self._claim
        commit = TickCommit(
            lock=claim.lock,
            clog_id=self._clog.clog_id,
            tick=claim.tick,
            call=call,
            outcome=outcome,
            effects=effects,
            instance_id=self._crew.instance_id,
            version=self._clog.version,
            claimed_at=claim.claimed_at,
        )
        while True:
            seen = self._crew.store.commits_seen()
            answer = await _patiently(lambda: self._crew.store.commit_tick(commit))
            if not isinstance(answer, Behind):
                return answer
            await commit_or_time(self._crew.store, self._crew.clock, seen, claim.lock.lock_ms)

    async def _take_turn(self, effects: Effects) -> None:
        while True:
            seen = self._crew.store.commits_seen()
            if await self._crew.store.take_turn(self._claim.lock, effects.contested_keys):
                return
            await commit_or_time(self._crew.store, self._crew.clock, seen, self._claim.lock.lock_ms)


async def _patiently(commit: Callable[[], Awaitable[TickAnswer]]) -> TickAnswer:
    """A busy database is asked again: a finished call is too dear to throw away. Repeating a commit is safe."""
    for tries_left in reversed(range(COMMIT_TRIES)):
        try:
            return await commit()
        except StoreBusy:
            if not tries_left:
                raise
    raise AssertionError("unreachable")
