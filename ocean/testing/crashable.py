"""An Ocean instance that can be killed at any point of a scenario, inside the process of the test.

The handler of each tick runs in a task of its own. To kill it, that task is frozen where it is, and its lock expires:
for the store, the process is gone. The poke is repeated, and the tick is claimed again.
"""

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from typing import Any, cast

import anyio

from ocean.clog.clog import Clog
from ocean.compose import Ocean
from ocean.kernel.invoke import invoke
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimAsk, Committed, TickAnswer, TickCommit
from ocean.kernel.tick import Tick
from ocean.state.errors import LockLost
from ocean.state.ids import IdSource
from ocean.state.records import AdvanceResult, Claim, Lock, RunStatus, TickResult
from ocean.testing.crash_points import (
    CALLED_AGAIN,
    CrashableCall,
    CrashPoint,
    ScenarioExecution,
    SourceLine,
    current_call,
    line_of_caller,
    line_of_wait,
)
from ocean.testing.manual_clock import ManualClock
from ocean.testing.outside import Outside

TOOLS = (
    *("read", "write", "emit", "stream", "step", "take", "call", "signal", "create_run", "release_dedupe_key"),
    *("set_timer", "cancel_timer", "set_attributes", "list_runs", "get_run", "list_clogs", "pending", "next_signal"),
    "fetch",
)
LASTING = ("stream", "step")
"""Tools whose effect stays if the call is killed right after them: calls are killed after these tools, too."""

MOMENT_MS = 1
"""How long a lock lasts. There is no other instance, and time stands still while a handler works."""

PATIENCE_SECONDS = 5
STUCK = (
    "after the crash, a handler waited too long. If it waits for a lock or a connection of a module that the killed "
    "call still holds, give crash_everywhere a function that makes it together with the clogs"
)

BEFORE_COMMIT = "after the handler had returned, before the commit"
AFTER_COMMIT = "after the commit, before the process knew of it"


class RestartableClogs:
    """The clogs of a process. A restart makes them again, so that what they keep in memory is lost."""

    def __init__(self, make_clogs: Callable[[], Collection[Clog]]) -> None:
        self._make_clogs = make_clogs
        self.clogs: dict[str, Clog] = {}
        self.restart()

    def restart(self) -> None:
        """Make the clogs again."""
        self.clogs = {clog.clog_id: clog for clog in self._make_clogs()}


class CrashableOcean(Ocean):
    """Runs one tick at a time and makes ids in order, so that the same scenario reaches the same points."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        process: RestartableClogs,
        execution: ScenarioExecution,
        outside: Outside,
        downtime_ms: int,
        **options: Any,
    ) -> None:
        crashable_store = CrashableStore(store, clock, process, execution, downtime_ms)
        clogs = [crashable_clog(clog, process, execution) for clog in process.clogs.values()]
        super().__init__(cast(Store, crashable_store), clogs, clock, instance_id="crashable", reach=outside, **options)
        self._ids = CountedIds()
        self._crashable_store = crashable_store

    async def advance(self, **options: Any) -> AdvanceResult:
        """Poke, and poke again if the process was killed during the poke."""
        outcomes: tuple[TickResult, ...] = ()
        while True:
            kills = self._crashable_store.kills
            advanced = await super().advance(**options | {"concurrency": 1})
            outcomes += advanced.outcomes
            if self._crashable_store.kills == kills:
                return replace(advanced, outcomes=outcomes)


class CountedIds(IdSource):
    """Makes ids in order."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def new(self, now_ms: int) -> str:
        """Return the next id."""
        self._count += 1
        return f"00000000-0000-7000-8000-{self._count:012}"


class CrashableStore:
    """The store of a process that can be killed around a commit. Other methods are those of the real store."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        process: RestartableClogs,
        execution: ScenarioExecution,
        downtime_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._process = process
        self._execution = execution
        self._downtime_ms = downtime_ms
        self._left_locked: set[str] = set()
        self.kills = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        """Claim with short locks, which have expired if the process was killed."""
        brief = {clog_id: replace(clog, lock_ms=MOMENT_MS) for clog_id, clog in ask.clogs.items()}
        ask = replace(ask, clogs=brief)
        if not self._left_locked:
            return await self._store.claim_due(ask)
        # Move the clock past the lock of the killed process, for this claim only: the scenario's times must not change.
        self._clock.jump(MOMENT_MS)
        try:
            claims = await self._store.claim_due(ask)
        finally:
            self._clock.jump(-MOMENT_MS)
        self._left_locked -= {claim.run.run_id for claim in claims}
        return claims

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        """Commit, or be killed before or after it."""
        at = CrashPoint(commit.clog_id, commit.lock.run_id, commit.tick, commit.call, "")
        is_spared = (at.run_id, at.tick) in self._execution.spared
        if not is_spared and self._execution.kills_at(replace(at, what=BEFORE_COMMIT)):
            self.left_locked(commit.lock.run_id)
            raise LockLost("killed before the commit")
        if self._execution.kills_at(replace(at, what=CALLED_AGAIN)):
            await self._store.give_back(commit.lock, commit.tick)
            self.kills += 1
            raise LockLost("given back instead of committed")
        result = await self._store.commit_tick(commit)
        if isinstance(result, Committed) and self._execution.kills_at(replace(at, what=AFTER_COMMIT)):
            self._restart()
            raise LockLost("killed after the commit")
        return result

    async def give_back(self, lock: Lock, tick: int, *, counts: bool = True) -> RunStatus | None:
        """Give a run back, unless the process that held it was killed."""
        return None if lock.run_id in self._left_locked else await self._store.give_back(lock, tick, counts=counts)

    def left_locked(self, run_id: str) -> None:
        """Record that the process was killed while it held the lock of this run."""
        self.kills += 1
        self._left_locked.add(run_id)
        self._restart()

    def _restart(self) -> None:
        self._process.restart()
        self._clock.advance(self._downtime_ms)


def crashable_clog(clog: Clog, process: RestartableClogs, execution: ScenarioExecution) -> Clog:
    """Return the clog with handlers that can be killed, and methods that can be killed when a tick calls them."""

    async def advance(tick: Tick) -> Any:
        return await _call_crashable(process.clogs[clog.clog_id].handler, tick, execution)

    async def end(tick: Tick) -> Any:
        handler = process.clogs[clog.clog_id].end_handler
        if execution.kills_on_end:
            return await _call_crashable(handler, tick, execution)
        execution.spared.add((tick.run_id, tick.number))
        return await invoke(cast(Any, handler), tick)

    crashable = copy.copy(clog)
    crashable.lock_ms = None
    crashable.handler = advance if clog.handler else None
    crashable.end_handler = end if clog.end_handler else None
    crashable.methods = {name: _crashable_method(name, clog.clog_id, process) for name in clog.methods}
    return crashable


async def _call_crashable(handler: Any, tick: Tick, execution: ScenarioExecution) -> Any:
    scene = tick._context
    if scene.is_dry:
        return await invoke(handler, tick)
    call = CrashableCall(execution, CrashPoint(tick.clog_id, tick.run_id, tick.number, tick.call_number, ""))
    _watch(tick, call)
    call.task = asyncio.create_task(_run(call, handler, tick))
    patience = PATIENCE_SECONDS if execution.is_killed else None
    try:
        ended = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait({call.task, call.death}, timeout=patience, return_when=ended)
        if not done:
            call.task.cancel()
            raise TimeoutError(STUCK)
    except asyncio.CancelledError:
        # The kernel cancels this call: its deadline has passed, or its lock was lost.
        call.task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({call.task})
        raise
    if call.is_dead:
        scene.is_lost = True
        cast(CrashableStore, scene.store).left_locked(tick.run_id)
        raise LockLost("killed in its handler")
    return call.task.result()


async def _run(call: CrashableCall, handler: Callable[[Tick], Any], tick: Tick) -> Any:
    current_call.set(call)
    if inspect.iscoroutinefunction(handler):
        return await _WatchedCoroutine(handler(tick), call)
    return await invoke(handler, tick)


def _crashable_method(name: str, clog_id: str, process: RestartableClogs) -> Callable[..., Any]:
    async def method(tick: Tick, payload: Any) -> Any:
        if (call := current_call.get()) is not None:
            _watch(tick, call)
        return await invoke(process.clogs[clog_id].find_method(name), tick, payload)

    return method


def _watch(tick: Tick, call: CrashableCall) -> None:
    """Make every tool of this tick reach a crash point first."""
    for name in TOOLS:
        setattr(tick, name, _watched_tool(getattr(tick, name), f"tick.{name}", name in LASTING, call))
    for name in ("invoke", "attempt"):
        setattr(tick.tools, name, _watched_tool(getattr(tick.tools, name), f"tick.tools.{name}", True, call))


def _watched_tool(tool: Callable[..., Any], name: str, is_lasting: bool, call: CrashableCall) -> Callable[..., Any]:
    @functools.wraps(tool)
    async def use(*args: Any, **options: Any) -> Any:
        line = line_of_caller()
        await call.reach(f"before {name}", line)
        result = await tool(*args, **options)
        if is_lasting:
            await call.reach(f"after {name}, before the handler continued", line)
        return result

    return use


class _WatchedCoroutine:
    """Drives the coroutine of a handler. Where it waits for something that is not Ocean's, there is a crash point."""

    def __init__(self, coroutine: Any, call: CrashableCall) -> None:
        self._coroutine = coroutine
        self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        resume: Callable[[], Any] = functools.partial(self._coroutine.send, None)
        while True:
            try:
                awaited = resume()
            except StopIteration as end:
                return end.value
            try:
                yield from self._waited(awaited)
            except BaseException as error:
                resume = functools.partial(self._coroutine.throw, error)
            else:
                resume = functools.partial(self._coroutine.send, None)

    def _waited(self, awaited: Any) -> Generator[Any, None, None]:
        line: SourceLine | None = line_of_wait(self._coroutine)
        if line is None or not self._call.dies_at("while it waited", line):
            yield awaited
        if self._call.is_dead:
            yield from self._call.freeze().__await__()
