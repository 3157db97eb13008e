"""An instance that can be killed at any place of a scenario, in the process of the test.

The handler of each tick runs in a task of its own. To kill it there, that task is left standing where it is, and its
lock lapses: for the rest of the house the process is gone. Whoever poked pokes again, and the tick is claimed anew.
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
from ocean.state.records import AdvanceResult, Claim, TickResult
from ocean.testing.crash_points import (
    CALLED_AGAIN,
    Course,
    CrashPoint,
    Life,
    Place,
    living,
    place_of_caller,
    place_of_own_wait,
)
from ocean.testing.manual_clock import ManualClock
from ocean.testing.outside import Outside

TOOLS = (
    *("read", "write", "emit", "stream", "step", "take", "call", "signal", "create_run", "release_dedupe_key"),
    *(
        "set_timer",
        "cancel_timer",
        "set_attributes",
        "list_runs",
        "get_run",
        "list_clogs",
        "pending",
        "next_signal",
        "fetch",
    ),
)
LASTING = ("stream", "step")
"""Tools after which something stays even if the call dies at once: there it is killed after them, too."""

MOMENT_MS = 1
"""How long a lock lasts. Nobody else is here, and time stands still while a handler works."""

PATIENCE_SECONDS = 5
STUCK = (
    "after the crash, a handler waited too long for something. If the killed call still holds it, a lock or connection "
    "of a module's, give crash_everywhere a function that makes it together with the clogs"
)

BEFORE_COMMIT = "after the handler had answered, before the commit"
UNHEARD = "after the commit, before anybody heard of it"


class Process:
    """What dies with a process: its clogs, with all that they keep in memory, if they can be made anew."""

    def __init__(self, make_clogs: Callable[[], Collection[Clog]]) -> None:
        self._make_clogs = make_clogs
        self.clogs: dict[str, Clog] = {}
        self.restart()

    def restart(self) -> None:
        self.clogs = {clog.clog_id: clog for clog in self._make_clogs()}


class MortalOcean(Ocean):
    """One tick at a time, ids in order: the same scenario comes by the same places."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        process: Process,
        course: Course,
        outside: Outside,
        downtime_ms: int,
        **options: Any,
    ) -> None:
        mortal_store = MortalStore(store, clock, process, course, downtime_ms)
        clogs = [mortal_clog(clog, process, course) for clog in process.clogs.values()]
        super().__init__(cast(Store, mortal_store), clogs, clock, instance_id="mortal", reach=outside, **options)
        self._ids = CountedIds()
        self._mortal_store = mortal_store

    async def advance(self, **asked: Any) -> AdvanceResult:
        """Whoever finds that the process died under his poke pokes again."""
        outcomes: tuple[TickResult, ...] = ()
        while True:
            undone = self._mortal_store.undone
            advanced = await super().advance(**asked | {"concurrency": 1})
            outcomes += advanced.outcomes
            if self._mortal_store.undone == undone:
                return replace(advanced, outcomes=outcomes)


class CountedIds(IdSource):
    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def new(self, now_ms: int) -> str:
        self._count += 1
        return f"00000000-0000-7000-8000-{self._count:012}"


class MortalStore:
    """The store as a process sees it that may die around a commit. What it does not say is the real one's."""

    def __init__(self, store: Store, clock: ManualClock, process: Process, course: Course, downtime_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._process = process
        self._course = course
        self._downtime_ms = downtime_ms
        self._left_locked: set[str] = set()
        self.undone = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        brief = {clog_id: replace(clog, lock_ms=MOMENT_MS) for clog_id, clog in ask.clogs.items()}
        ask = replace(ask, clogs=brief)
        if not self._left_locked:
            return await self._store.claim_due(ask)
        # The dead one's lock has lapsed, for this look only: a crash must not make the scenario's own times wrong.
        self._clock.jump(MOMENT_MS)
        try:
            claims = await self._store.claim_due(ask)
        finally:
            self._clock.jump(-MOMENT_MS)
        self._left_locked -= {claim.run.run_id for claim in claims}
        return claims

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        at = CrashPoint(commit.clog_id, commit.lock.run_id, commit.tick, commit.call, "")
        is_spared = (at.run_id, at.tick) in self._course.spared
        if not is_spared and self._course.kills_at(replace(at, what=BEFORE_COMMIT)):
            self.left_locked(commit.lock.run_id)
            raise LockLost("killed before the commit")
        if self._course.kills_at(replace(at, what=CALLED_AGAIN)):
            await self._store.give_back(commit.lock, commit.tick)
            self.undone += 1
            raise LockLost("given back instead of committed")
        answer = await self._store.commit_tick(commit)
        if isinstance(answer, Committed) and self._course.kills_at(replace(at, what=UNHEARD)):
            self._restart()
            raise LockLost("killed after the commit")
        return answer

    def left_locked(self, run_id: str) -> None:
        """The process has died with this run in its hands."""
        self.undone += 1
        self._left_locked.add(run_id)
        self._restart()

    def _restart(self) -> None:
        self._process.restart()
        self._clock.advance(self._downtime_ms)


def mortal_clog(clog: Clog, process: Process, course: Course) -> Clog:
    """The clog, with handlers that may die and methods that may die in a tick which calls them."""

    async def advance(tick: Tick) -> Any:
        return await _call_mortal(process.clogs[clog.clog_id].handler, tick, course)

    async def end(tick: Tick) -> Any:
        handler = process.clogs[clog.clog_id].end_handler
        if course.kills_on_end:
            return await _call_mortal(handler, tick, course)
        course.spared.add((tick.run_id, tick.number))
        return await invoke(cast(Any, handler), tick)

    mortal = copy.copy(clog)
    mortal.lock_ms = None
    mortal.handler = advance if clog.handler else None
    mortal.end_handler = end if clog.end_handler else None
    mortal.methods = {name: _mortal_method(name, clog.clog_id, process) for name in clog.methods}
    return mortal


async def _call_mortal(handler: Any, tick: Tick, course: Course) -> Any:
    scene = tick._context
    if scene.is_dry:
        return await invoke(handler, tick)
    life = Life(course, CrashPoint(tick.clog_id, tick.run_id, tick.number, tick.call_number, ""))
    _watch(tick, life)
    life.task = asyncio.create_task(_live(life, handler, tick))
    patience = PATIENCE_SECONDS if course.is_killed else None
    try:
        ended = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait({life.task, life.death}, timeout=patience, return_when=ended)
        if not done:
            life.task.cancel()
            raise TimeoutError(STUCK)
    except asyncio.CancelledError:
        # The kernel stops this call: its time is over, or its lock lost.
        life.task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({life.task})
        raise
    if life.is_dead:
        scene.is_lost = True
        cast(MortalStore, scene.store).left_locked(tick.run_id)
        raise LockLost("killed in its handler")
    return life.task.result()


async def _live(life: Life, handler: Callable[[Tick], Any], tick: Tick) -> Any:
    living.set(life)
    if inspect.iscoroutinefunction(handler):
        return await _Watched(handler(tick), life)
    return await invoke(handler, tick)


def _mortal_method(name: str, clog_id: str, process: Process) -> Callable[..., Any]:
    async def call(tick: Tick, payload: Any) -> Any:
        if (life := living.get()) is not None:
            _watch(tick, life)
        return await invoke(process.clogs[clog_id].find_method(name), tick, payload)

    return call


def _watch(tick: Tick, life: Life) -> None:
    """Let every tool of this view of a tick come by its place first."""
    for name in TOOLS:
        setattr(tick, name, _watched_tool(getattr(tick, name), f"tick.{name}", name in LASTING, life))
    for name in ("invoke", "attempt"):
        setattr(tick.tools, name, _watched_tool(getattr(tick.tools, name), f"tick.tools.{name}", True, life))


def _watched_tool(tool: Callable[..., Any], name: str, is_lasting: bool, life: Life) -> Callable[..., Any]:
    @functools.wraps(tool)
    async def use(*args: Any, **options: Any) -> Any:
        place = place_of_caller()
        await life.come_by(f"before {name}", place)
        answer = await tool(*args, **options)
        if is_lasting:
            await life.come_by(f"after {name}, before the handler went on", place)
        return answer

    return use


class _Watched:
    """Drives a handler's coroutine; where it waits for something that is not Ocean's, it comes by a place."""

    def __init__(self, coroutine: Any, life: Life) -> None:
        self._coroutine = coroutine
        self._life = life

    def __await__(self) -> Generator[Any, None, Any]:
        go_on: Callable[[], Any] = functools.partial(self._coroutine.send, None)
        while True:
            try:
                awaited = go_on()
            except StopIteration as end:
                return end.value
            try:
                yield from self._waited(awaited)
            except BaseException as error:
                go_on = functools.partial(self._coroutine.throw, error)
            else:
                go_on = functools.partial(self._coroutine.send, None)

    def _waited(self, awaited: Any) -> Generator[Any, None, None]:
        place: Place | None = place_of_own_wait(self._coroutine)
        if place is None or not self._life.dies_at("while it waited", place):
            yield awaited
        if self._life.is_dead:
            yield from self._life.stand_still().__await__()
