"""absurd on PostgreSQL: its schema as its own tool bundles it, clients on connections of their own, and a worker that
claims as many tasks at once as it works on."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.contestants.answering import (
    Answer,
    Ask,
    Countdown,
    Moments,
    answer,
    background,
    by_callers,
    one_by_one,
    until,
)

UNFINISHED = "SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'"


@asynccontextmanager
async def opened(ask: Ask) -> AsyncIterator[tuple[list[AsyncAbsurd], AsyncAbsurd, Any]]:
    """Clients that spawn, a worker, and a connection to look with."""
    looking = await psycopg.AsyncConnection.connect(ask["db"], autocommit=True)
    await looking.execute(BUNDLED_SCHEMA_SQL)
    worker = AsyncAbsurd(ask["db"])
    await worker.create_queue()
    clients = [AsyncAbsurd(ask["db"]) for _ in range(ask["connections"])]
    yield clients, worker, looking
    for each in (*clients, worker):
        await each.close()
    await looking.close()


async def one_tick_runs(ask: Ask) -> Answer:
    async with opened(ask) as (clients, worker, looking):
        countdown = Countdown(0)

        @worker.register_task("job")
        async def job(params: Any, ctx: Any) -> Any:
            countdown.tell()
            return params

        async def is_finished() -> bool:
            return not (await (await looking.execute(UNFINISHED)).fetchone())[0]

        async def create(number: int) -> None:
            await clients[number % len(clients)].spawn("job", {"n": number}, queue="default")

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await by_callers(ask["callers"], count, create)
            await countdown.over()
            await until(is_finished)
            return time.perf_counter() - began

        async with background(
            worker.start_worker(concurrency=ask["concurrency"], poll_interval=ask["poll_ms"] / 1_000)
        ):
            await finished(50)
            return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def signal_latency(ask: Ask) -> Answer:
    moments = Moments()

    async with opened(ask) as (clients, worker, looking):

        @worker.register_task("job")
        async def job(params: Any, ctx: Any) -> Any:
            moments.handle()
            return params

        async def is_finished() -> bool:
            return not (await (await looking.execute(UNFINISHED)).fetchone())[0]

        async def spawn(number: int) -> None:
            await clients[0].spawn("job", {"n": number}, queue="default")
            await until(is_finished, every_s=0.001)
            moments.commit()

        async with background(
            worker.start_worker(concurrency=ask["concurrency"], poll_interval=ask["poll_ms"] / 1_000)
        ):
            return await one_by_one(ask["signals"], moments, spawn)


if __name__ == "__main__":
    answer({"one_tick_runs": one_tick_runs, "signal_latency": signal_latency})
