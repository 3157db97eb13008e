"""Instances: each is a simulated process with its own clock and its own store, and can crash on its own."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ocean import Clog, LockLost, Ocean, OceanError, StoreUnusable
from ocean.kernel.store import Store
from ocean.kernel.store.claims import TickAnswer, TickCommit
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing.simulation.inline_database import InlineDatabase
from ocean.testing.simulation.processes import Process
from ocean.testing.simulation.virtual_clock import VirtualClock
from tests.simulation.at_work import AtWork

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

is_dry_run: contextvars.ContextVar[bool] = contextvars.ContextVar("is_rehearsal", default=False)


class Unreachable(Exception):
    """There was no response: whether the request was executed is unknown."""


class WatchedStore(SqliteStore):
    """Records which units write, and which runs they touch."""

    def __init__(self, instance: "Instance", database: InlineDatabase, clock: VirtualClock) -> None:
        super().__init__(database, clock)
        self._instance = instance
        self.units: list[tuple[str, Unit]] = []

    async def _write(self, act: Callable[[Unit], T]) -> T:
        verb = act.__qualname__.split(".")[1]
        if is_dry_run.get():
            self._instance.world.fail("dry run", f"a dry run writes: {verb}")

        def noted(u: Unit) -> T:
            self.units.append((verb, u))
            return act(u)

        return await super()._write(noted)

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        try:
            return await super().commit_tick(commit)
        except LockLost:
            self._instance.world.history.lost.append((commit.lock.run_id, commit.tick, commit.lock.epoch))
            raise


class Instance:
    def __init__(self, world: "World", name: str, clogs: Callable[["Instance"], list[Clog]]) -> None:
        self.world = world
        self.name = name
        self._clogs = clogs
        self._lives = 0
        self._asked: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        self.is_up = False
        self.is_ready = False
        self.ocean: Ocean
        self.store: Store
        self.process: Process
        self.at_work: AtWork
        self.clock: VirtualClock

    async def boot(self) -> None:
        """Start a new process, which registers its clogs. It may crash before it has."""
        world = self.world
        if world.over.done():
            # It would crash at once and be started again, without end, and nothing would reap it.
            return
        self._lives += 1
        is_skewed = world.is_on_sqlite and world.happens("skew", always=True)
        ahead_ms = world.chance.randint(-3_000, 3_000) if is_skewed else 0
        self.process = Process(world.loop, f"{self.name}.{self._lives}")
        self.at_work = world.at_work[self.process.name] = AtWork(world, self.process)
        self.clock = VirtualClock(world.loop, self.process, ahead_ms)
        world.processes.append(self.process)
        world.record(f"{self.process.name} starts, clock {ahead_ms:+d}")
        self.is_up = True
        try:
            await self._reply(self.process.start(self._open()))
            self.is_ready = True
        except (Unreachable, OceanError):
            self.crash()

    async def _open(self) -> None:
        self.store = self.world.backend.store(self)
        if isinstance(self.store, WatchedStore):
            await self.store.open()
        self.ocean = Ocean(
            self.store, self._clogs(self), self.clock, lock_ms=self.world.plan.lock_ms, instance_id=self.process.name
        )
        await self.ocean.start()

    def crash(self) -> None:
        """Kill the process. Requests that wait for it fail with `Unreachable`."""
        if not self.is_up:
            return
        self.is_up = self.is_ready = False
        self.process.kill()
        self.world.record(f"{self.process.name} dies")
        for reply in list(self._asked):
            if not reply.done():
                reply.set_exception(Unreachable(self.process.name))
        self.world.at(self.world.chance.randint(0, 2_000), self.boot)

    async def die(self) -> None:
        """Kill the process from inside. The caller never continues."""
        self.crash()
        await asyncio.shield(self.world.over)
        raise StoreUnusable("the simulation is over")

    async def ask(self, work: Callable[[Ocean], Coroutine[Any, Any, T]], *, cancel_at: int | None = None) -> T:
        """Run something in this process and return its result. With `cancel_at` it is cancelled at that await."""
        if not self.is_ready:
            raise Unreachable(self.name)
        if cancel_at is None:
            return await self._reply(self.process.start(work(self.ocean)))
        return await self._reply(self.process.start(_cancelled_at(partial(work, self.ocean), cancel_at)))

    async def _reply(self, task: "asyncio.Task[T]") -> T:
        reply: asyncio.Future[T] = self.world.loop.create_future()
        self._asked[reply] = task
        task.add_done_callback(lambda done: _answer(done, reply), context=contextvars.Context())
        try:
            return await reply
        finally:
            self._asked.pop(reply, None)


def _answer(task: "asyncio.Task[T]", reply: "asyncio.Future[T]") -> None:
    if reply.done():
        return
    if task.cancelled():
        reply.set_exception(Unreachable("cancelled"))
    elif (error := task.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(task.result())


async def _cancelled_at(work: Callable[[], Coroutine[Any, Any, T]], steps: int) -> T:
    """Cancel the current task at its n-th await."""
    result: T = await _Counted(work(), steps)
    return result


class _Counted:
    def __init__(self, work: Coroutine[Any, Any, Any], steps: int) -> None:
        self._work = work
        self._left = steps

    def __await__(self) -> Any:
        task = asyncio.current_task()
        assert task is not None
        send: Callable[[], Any] = lambda: self._work.send(None)  # noqa: E731
        while True:
            try:
                awaited = send()
            except StopIteration as stop:
                return stop.value
            self._left -= 1
            if self._left == 0:
                asyncio.get_running_loop().call_soon(task.cancel)
            try:
                yield awaited
            except BaseException as error:
                thrown = error
                send = lambda: self._work.throw(thrown)  # noqa: E731, B023
            else:
                send = lambda: self._work.send(None)  # noqa: E731
