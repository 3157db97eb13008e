"""One seed from its beginning to its end: instances, clients, workers and readers over one database."""

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
from tests.simulation import clients, workers
from tests.simulation import final_checks as judging
from tests.simulation import liveness as healing
from tests.simulation import readers as reading
from tests.simulation.clogs import clogs_of
from tests.simulation.commit_checks import Watcher
from tests.simulation.databases import Ground, GroundName, PostgresGround, SqliteGround
from tests.simulation.decisions import Contest
from tests.simulation.history import History
from tests.simulation.instances import Instance
from tests.simulation.plan import Plan, drawn
from tests.simulation.threads import one_at_a_time

Mode = Literal["safety", "liveness"]

LONGEST_MS = 120_000
"""Of virtual time, for what clients do. Who waits longer for an answer has none."""


THREADS_SHARE = 0.08
"""Of the seeds in which handlers are plain functions."""


@dataclass(frozen=True)
class Failure:
    check: str
    message: str


@dataclass
class Result:
    seed: int
    mode: Mode
    ground: GroundName
    failure: Failure | None
    coverage: Counter[str]
    digest: str
    steps: int
    trace: list[str] = field(default_factory=list)


class World:
    def __init__(self, seed: int, mode: Mode, loop: VirtualLoop, chance: Random, ground: GroundName) -> None:
        self.seed = seed
        self.mode = mode
        self.loop = loop
        self.chance = chance
        self.plan: Plan = drawn(chance, Random(f"{seed}-verbs"))
        self.clock = VirtualClock(loop)
        self.is_on_sqlite = ground == "sqlite"
        self.ground: Ground = SqliteGround() if self.is_on_sqlite else PostgresGround(self.clock)
        self.trace: list[str] = []
        self.coverage: Counter[str] = Counter()
        self.failure: Failure | None = None
        self.over: asyncio.Future[None] = loop.create_future()
        self.has_failed = asyncio.Event()
        self.is_calm = False
        self.processes: list[Process] = []
        self.history = History()
        self.watcher = Watcher(self)
        self.contest = Contest(self)
        self.has_threads = Random(f"{seed}-threads").random() < THREADS_SHARE
        self.instances = [Instance(self, f"i{n}", clogs_of) for n in range(self.plan.instances)]
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def db(self) -> sqlite3.Connection:
        return self.ground.db

    def say(self, line: str) -> None:
        self.trace.append(f"{round(self.loop.time() * 1000):>8} {line}")

    def saw(self, what: str) -> None:
        self.coverage[what] += 1

    def fail(self, check: str, message: str) -> None:
        """The first failure counts: what comes after it may be its consequence."""
        if self.failure is None and not self.over.done():
            self.failure = Failure(check, message)
            self.say(f"FAILED {check}: {message}")
            self.has_failed.set()

    def strikes(self, fault: str, *, always: bool = False) -> bool:
        """Whether a fault happens on this occasion. `always`: whenever this seed has it at all."""
        rate = self.plan.rates.get(fault)
        if rate is None or self.is_calm or self.over.done() or not (always or self.chance.random() < rate):
            return False
        self.saw(f"fault {fault}")
        self.say(f"fault {fault}")
        return True

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Something that belongs to no instance: the world outside."""
        task: asyncio.Task[Any] = self.loop.create_task(work, context=contextvars.Context())
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail("nobody expected", repr(error))

    def at(self, ms: int, then: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.loop.call_later(ms / 1000, lambda: self.start(then()), context=contextvars.Context())

    def instance(self) -> Instance:
        return self.chance.choice(self.instances)

    async def live(self) -> None:
        for instance in self.instances:
            await instance.boot()
        outside = [clients.client(self, number) for number in range(self.plan.clients)]
        busy = [self.start(each) for each in (*outside, *self.contest.deciders())]
        for instance in self.instances:
            self.start(clients.poker(self, instance))
            self.start(clients.trouble(self, instance))
        self.start(workers.worker(self, self.instances[0]))
        if self.chance.random() < 0.5:
            self.start(reading.reader(self, self.instances[-1]))
        self.start(reading.run_reader(self))
        await self._until(busy, LONGEST_MS)
        if self.failure is None:
            # What was asked last is still to be done.
            await self._until([self.start(sleep(self.clock, self.chance.choice((300, 1_500, 5_000))))], LONGEST_MS)
        if self.failure is None and self.mode == "liveness":
            await self._until([self.start(healing.heal(self))], healing.LONGEST_MS)
        if self.failure is None:
            self.watcher.check_all()
        if self.failure is None:
            judging.judge(self)

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
        """Let everybody unwind, the dead too. Nothing is written any more."""
        self.over.set_result(None)
        for process in self.processes:
            process.reap()
        for task in self._tasks:
            task.cancel()
        tasks = [*self._tasks, *(task for process in self.processes for task in process.tasks)]
        await asyncio.wait(tasks, timeout=60)


@contextmanager
def _silence() -> Iterator[None]:
    """What the kernel logs is no part of the trace, and what garbage is found when is no part of the seed."""
    logging.disable()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


def simulate(seed: int, mode: Mode = "safety", ground: GroundName = "sqlite") -> Result:
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
        loop.set_exception_handler(lambda _, told: errors.append(str(told.get("exception") or told["message"])))
        world = World(seed, mode, loop, chance, ground)
        try:
            runner.run(world.live())
        except LostWakeUp as error:
            failure = Failure("lost wake-up", str(error))
        if errors and world.failure is None:
            world.fail("nobody expected", errors[0])
        failure = world.failure or failure
        text = "\n".join(world.trace)
        runner.run(world.end())
    world.ground.close()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Result(seed, mode, ground, failure, world.coverage, digest, loop.steps, world.trace)
