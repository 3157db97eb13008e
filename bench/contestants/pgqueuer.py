"""pgqueuer on PostgreSQL, as its page on performance says: a pool for producers, a connection for each queue manager,
larger batches for short jobs, its own autovacuum settings, and uvloop, on which its command line runs.

A job is finished when its row is gone and its log written, which is buffered: stopping the managers flushes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.contestants.answering import (
    Answer,
    Ask,
    Countdown,
    Moments,
    Timers,
    answer,
    background,
    by_callers,
    one_by_one,
)
from bench.contestants.resting import asked_at_rest

Handler = Callable[[Job], Awaitable[None]]


@asynccontextmanager
async def installed(ask: Ask) -> AsyncIterator[Queries]:
    async with asyncpg.create_pool(ask["db"], min_size=ask["connections"], max_size=ask["connections"]) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        await queries.optimize_autovacuum()
        yield queries


class Managers:
    """Queue managers at work, each on a connection of its own, until they are stopped."""

    def __init__(self, ask: Ask, handler: Handler) -> None:
        self._ask = ask
        self._handler = handler
        self._managers: list[PgQueuer] = []

    async def run(self) -> None:
        connections = [await asyncpg.connect(self._ask["db"]) for _ in range(self._ask["managers"])]
        for connection in connections:
            manager = PgQueuer(AsyncpgDriver(connection))
            manager.entrypoint("job")(self._handler)
            self._managers.append(manager)
        batch = self._ask["batch"]
        await asyncio.gather(*(manager.run(batch_size=batch) for manager in self._managers))
        for connection in connections:
            await connection.close()

    def stop(self) -> None:
        for manager in self._managers:
            manager.shutdown.set()


async def one_tick_runs(ask: Ask) -> Answer:
    async with installed(ask) as queries:

        async def create(number: int) -> None:
            await queries.enqueue("job", str(number).encode())

        async def finished(count: int) -> float:
            countdown = Countdown(count)

            async def work(job: Job) -> None:
                countdown.tell()

            managers = Managers(ask, work)
            async with background(managers.run()) as [running]:
                await asyncio.sleep(0.5)
                began = time.perf_counter()
                await by_callers(ask["callers"], count, create)
                await countdown.over()
                managers.stop()
                await running
                return time.perf_counter() - began

        await finished(50)
        seconds = await finished(ask["runs"])
        left: list[Any] = await queries.driver.fetch("SELECT count(*) AS count FROM pgqueuer")
        assert left[0]["count"] == 0, left
        return {"per_s": ask["runs"] / seconds}


class Logging(Queries):
    """Says when jobs are finished in the database: that is when they are logged."""

    on_logged: Callable[[], None]

    async def log_jobs(self, job_status: Any) -> Any:
        given = await super().log_jobs(job_status)
        self.on_logged()
        return given


async def signal_latency(ask: Ask) -> Answer:
    """A batch of one: a larger one would wait 100 ms for others before it is logged."""
    moments = Moments()

    async def work(job: Job) -> None:
        moments.handle()

    async with installed(ask) as queries:
        connection = await asyncpg.connect(ask["db"])
        logging = Logging(AsyncpgDriver(connection))
        logging.on_logged = moments.commit
        manager = PgQueuer(logging.driver, queries=logging)
        manager.entrypoint("job")(work)
        async with background(manager.run(batch_size=1)):
            await asyncio.sleep(0.5)
            return await one_by_one(ask["signals"], moments, lambda n: queries.enqueue("job", str(n).encode()))


async def timers(ask: Ask) -> Answer:
    clocks = Timers(ask)

    async def work(job: Job) -> None:
        clocks.fired(job.execute_after.timestamp())

    async with installed(ask) as queries:

        async def defer(number: int) -> None:
            await queries.enqueue("job", b"", execute_after=timedelta(seconds=clocks.at(number) - time.time()))

        async with background(Managers(ask, work).run()):
            return await clocks.set_by(ask["callers"], defer)


async def burst(ask: Ask) -> Answer:
    countdown = Countdown(0)

    async def work(job: Job) -> None:
        countdown.tell()

    async with installed(ask) as queries:

        async def drained(queued: int, count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            for at in range(0, queued, 1_000):
                some = min(1_000, queued - at)
                await queries.enqueue(["job"] * some, [b""] * some, [0] * some)
            managers = Managers(ask, work)
            began = time.perf_counter()
            async with background(managers.run()) as [running]:
                await countdown.over()
                managers.stop()
                await running
                return time.perf_counter() - began

        await drained(100, 100)
        await queries.driver.execute("VACUUM ANALYZE")
        return {"per_s": ask["drained"] / await drained(ask["count"], ask["drained"])}


async def idle(ask: Ask) -> Answer:
    async def work(job: Job) -> None:
        pass

    async with installed(ask), background(Managers(ask, work).run()):
        return await asked_at_rest(ask)


if __name__ == "__main__":
    questions = {
        "one_tick_runs": one_tick_runs,
        "signal_latency": signal_latency,
        "timers": timers,
        "burst": burst,
        "idle": idle,
    }
    answer(questions, run=uvloop.run)
