"""The simulation of one seed: instances, clients, workers and readers over one database."""

import asyncio
import contextvars
import gc
import hashlib
import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from ocean.state.clock import sleep
from ocean.state.ids import drawing_from
from ocean.testing.simulation.processes import Process
from ocean.testing.simulation.virtual_clock import VirtualClock
from ocean.testing.simulation.virtual_loop import LostWakeUp, VirtualLoop
from tests.simulation import clients, final_checks, liveness, readers, verbs, workers
from tests.simulation.at_work import AtWork
from tests.simulation.backends import Backend, BackendName, PostgresBackend, SqliteBackend
from tests.simulation.clogs import clogs_of
from tests.simulation.commit_checks import Watcher
from tests.simulation.decisions import Contest
from tests.simulation.history import History
from tests.simulation.instances import Instance
from tests.simulation.plan import Plan, drawn
from tests.simulation.threads import one_at_a_time

Mode = Literal["safety", "liveness"]

LONGEST_MS = 120_000
"""Virtual time for the clients. A request that takes longer counts as lost."""


THREADS_SHARE = 0.08
"""The share of seeds in which handlers are plain functions."""


@dataclass(frozen=True)
class Failure:
    check: str
    message: str


@dataclass
class Result:
    seed: int
    mode: Mode
    backend: BackendName
    failure: Failure | None
    coverage: Counter[str]
    digest: str
    steps: int
    trace: list[str] = field(default_factory=list)


class World:
    def __init__(self, seed: int, mode: Mode, loop: VirtualLoop, chance: Random, backend: BackendName) -> None:
        self.seed = seed
        self.mode = mode
        self.loop = loop
        self.chance = chance
        self.plan: Plan = drawn(chance, Random(f"{seed}-verbs"), Random(f"{seed}-ends"))
        self.clock = VirtualClock(loop)
        self.is_on_sqlite = backend == "sqlite"
        self.backend: Backend = SqliteBackend() if self.is_on_sqlite else PostgresBackend(self.clock)
        self.trace: list[str] = []
        self.coverage: Counter[str] = Counter()
        self.failure: Failure | None = None
        self.over: asyncio.Future[None] = loop.create_future()
        self.has_failed = asyncio.Event()
        self.is_calm = False
        self.processes: list[Process] = []
        self.history = History()
        self.at_work: dict[str, AtWork] = {}
        self.watcher = Watcher(self)
        self.contest = Contest(self)
        self.has_threads = Random(f"{seed}-threads").random() < THREADS_SHARE
        self.instances = [Instance(self, f"i{n}", clogs_of) for n in range(self.plan.instances)]
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def db(self) -> sqlite3.Connection:
        return self.backend.db

    def record(self, line: str) -> None:
        self.trace.append(f"{round(self.loop.time() * 1000):>8} {line}")

    def count_event(self, what: str) -> None:
        self.coverage[what] += 1

    def fail(self, check: str, message: str) -> None:
        """Record the first failure. Later ones may be its consequences."""
        if self.failure is None and not self.over.done():
            self.failure = Failure(check, message)
            self.record(f"FAILED {check}: {message}")
            self.has_failed.set()

    def happens(self, fault: str, *, always: bool = False) -> bool:
        """Return whether a fault happens now. With `always`: whether this seed has the fault at all."""
        rate = self.plan.rates.get(fault)
        if rate is None or self.is_calm or self.over.done() or not (always or self.chance.random() < rate):
            return False
        self.count_event(f"fault {fault}")
        self.record(f"fault {fault}")
        return True

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task that belongs to no instance."""
        task: asyncio.Task[Any] = self.loop.create_task(work, context=contextvars.Context())
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail("unexpected error", repr(error))

    def at(self, ms: int, then: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.loop.call_later(ms / 1000, lambda: self.start(then()), context=contextvars.Context())

    def cancel(self, run_id: str) -> None:
        """Send a request to cancel this run."""
        self.start(clients.ask(self, "canceller", clients.Request(*verbs.cancel(self, run_id))))

    def instance(self) -> Instance:
        return self.chance.choice(self.instances)

    async def live(self) -> None:
        for instance in self.instances:
            await instance.boot()
        outside = [clients.client(self, number) for number in range(self.plan.clients)]
        busy = [self.start(each) for each in (*outside, *self.contest.deciders())]
        for instance in self.instances:
            self.start(clients.poker(self, instance))
            self.start(clients.disturb_instance(self, instance))
        self.start(clients.retrier_of_ends(self))
        self.start(workers.worker(self, self.instances[0]))
        if self.chance.random() < 0.5:
            self.start(readers.reader(self, self.instances[-1]))
        self.start(readers.run_reader(self))
        await self._until(busy, LONGEST_MS)
        if self.failure is None:
            # The last requests still have effects to come.
            await self._until([self.start(sleep(self.clock, self.chance.choice((300, 1_500, 5_000))))], LONGEST_MS)
        if self.failure is None and self.mode == "liveness":
            await self._until([self.start(liveness.heal(self))], liveness.LONGEST_MS)
        if self.failure is None:
            self.watcher.check_all()
        if self.failure is None:
            final_checks.check_all(self)

    async def _until(self, tasks: "list[asyncio.Task[Any]]", most_ms: int) -> None:
        failed = self.start(self.has_failed.wait())
        late = self.start(sleep(self.clock, most_ms))
        rest = asyncio.gather(*tasks)
        await asyncio.wait([rest, failed, late], return_when=asyncio.FIRST_COMPLETED)
        if rest.done():
            rest.result()
        elif late.done() and self.is_calm:
            self.fail("liveness", f"still at work after {most_ms} ms: {[task for task in tasks if not task.done()]}")

    async def end(self) -> None:
        """Unwind all tasks, also those of killed processes. Nothing is written any more."""
        self.over.set_result(None)
        for process in self.processes:
            process.reap()
        for task in self._tasks:
            task.cancel()
        tasks = [*self._tasks, *(task for process in self.processes for task in process.tasks)]
        await asyncio.wait(tasks, timeout=60)


@contextmanager
def _silence() -> Iterator[None]:
    """Turn off logs, which are not part of the trace, and garbage collection, whose timing no seed decides."""
    logging.disable()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


def simulate(seed: int, mode: Mode = "safety", backend: BackendName = "sqlite") -> Result:
    chance = Random(seed)
    failure: Failure | None = None
    with (
        _silence(),
        one_at_a_time(),
        drawing_from(chance),
        asyncio.Runner(loop_factory=lambda: VirtualLoop(chance)) as runner,
    ):
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        errors: list[str] = []
        loop.set_exception_handler(
            lambda _, context: errors.append(str(context.get("exception") or context["message"]))
        )
        world = World(seed, mode, loop, chance, backend)
        try:
            runner.run(world.live())
        except LostWakeUp as error:
            failure = Failure("lost wake-up", str(error))
        if errors and world.failure is None:
            world.fail("unexpected error", errors[0])
        failure = world.failure or failure
        text = "\n".join(world.trace)
        runner.run(world.end())
    world.backend.close()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Result(seed, mode, backend, failure, world.coverage, digest, loop.steps, world.trace)
