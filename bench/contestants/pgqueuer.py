"""pgqueuer on PostgreSQL, as its page on performance recommends: a pool for producers, a connection for each queue
manager, larger batches for short jobs, its own autovacuum settings, and uvloop, which its command line uses.

A job is finished when its row is deleted and its log entry written. Log entries are buffered; stopping the managers
flushes them.
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

from bench.contestants.idle_transactions import count_idle_transactions
from bench.contestants.protocol import (
    Countdown,
    Request,
    Result,
    Timers,
    Timestamps,
    background,
    call_concurrently,
    measure_one_by_one,
    respond,
)

Handler = Callable[[Job], Awaitable[None]]


@asynccontextmanager
async def installed(request: Request) -> AsyncIterator[Queries]:
    async with asyncpg.create_pool(
        request["db"], min_size=request["connections"], max_size=request["connections"]
    ) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        await queries.optimize_autovacuum()
        yield queries


class Managers:
    """Running queue managers, each on a connection of its own, until they are stopped."""

    def __init__(self, request: Request, handler: Handler) -> None:
        self._ask = request
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


async def one_tick_runs(request: Request) -> Result:
    async with installed(request) as queries:

        async def create(number: int) -> None:
            await queries.enqueue("job", str(number).encode())

        async def finished(count: int) -> float:
            countdown = Countdown(count)

            async def work(job: Job) -> None:
                countdown.count()

            managers = Managers(request, work)
            async with background(managers.run()) as [running]:
                await asyncio.sleep(0.5)
                began = time.perf_counter()
                await call_concurrently(request["callers"], count, create)
                await countdown.wait()
                managers.stop()
                await running
                return time.perf_counter() - began

        await finished(50)
        seconds = await finished(request["runs"])
        left: list[Any] = await queries.driver.fetch("SELECT count(*) AS count FROM pgqueuer")
        assert left[0]["count"] == 0, left
        return {"per_s": request["runs"] / seconds}


class LogNotifyingQueries(Queries):
    """Calls `on_logged` when jobs are finished in the database, which is when they are logged."""

    on_logged: Callable[[], None]

    async def log_jobs(self, job_status: Any) -> Any:
        given = await super().log_jobs(job_status)
        self.on_logged()
        return given


async def signal_latency(request: Request) -> Result:
    """A batch of one: a larger one would wait 100 ms for further jobs before it is logged."""
    timestamps = Timestamps()

    async def work(job: Job) -> None:
        timestamps.mark_handled()

    async with installed(request) as queries:
        connection = await asyncpg.connect(request["db"])
        logging = LogNotifyingQueries(AsyncpgDriver(connection))
        logging.on_logged = timestamps.mark_committed
        manager = PgQueuer(logging.driver, queries=logging)
        manager.entrypoint("job")(work)
        async with background(manager.run(batch_size=1)):
            await asyncio.sleep(0.5)
            return await measure_one_by_one(
                request["signals"], timestamps, lambda n: queries.enqueue("job", str(n).encode())
            )


async def timers(request: Request) -> Result:
    clocks = Timers(request)

    async def work(job: Job) -> None:
        clocks.fired(job.execute_after.timestamp())

    async with installed(request) as queries:

        async def defer(number: int) -> None:
            await queries.enqueue("job", b"", execute_after=timedelta(seconds=clocks.due_at(number) - time.time()))

        async with background(Managers(request, work).run()):
            return await clocks.measure(request["callers"], defer)


async def burst(request: Request) -> Result:
    countdown = Countdown(0)

    async def work(job: Job) -> None:
        countdown.count()

    async with installed(request) as queries:

        async def drained(queued: int, count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            for at in range(0, queued, 1_000):
                some = min(1_000, queued - at)
                await queries.enqueue(["job"] * some, [b""] * some, [0] * some)
            managers = Managers(request, work)
            began = time.perf_counter()
            async with background(managers.run()) as [running]:
                await countdown.wait()
                managers.stop()
                await running
                return time.perf_counter() - began

        await drained(100, 100)
        await queries.driver.execute("VACUUM ANALYZE")
        return {"per_s": request["drained"] / await drained(request["count"], request["drained"])}


async def idle(request: Request) -> Result:
    async def work(job: Job) -> None:
        pass

    async with installed(request), background(Managers(request, work).run()):
        return await count_idle_transactions(request)


if __name__ == "__main__":
    questions = {
        "one_tick_runs": one_tick_runs,
        "signal_latency": signal_latency,
        "timers": timers,
        "burst": burst,
        "idle": idle,
    }
    respond(questions, run=uvloop.run)
