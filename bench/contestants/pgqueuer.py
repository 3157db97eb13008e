"""pgqueuer on PostgreSQL, as its page on performance says: a pool for producers, a connection for each queue manager,
larger batches for short jobs, its own autovacuum settings, and uvloop, on which its command line runs.

A job is finished when its row is gone and its log written, which is buffered: stopping the managers flushes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.contestants.answering import Answer, Ask, Countdown, answer, background, by_callers

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


if __name__ == "__main__":
    answer({"one_tick_runs": one_tick_runs}, run=uvloop.run)
