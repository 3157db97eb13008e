"""procrastinate on PostgreSQL: asynchronous tasks, a worker with concurrency, a pool large enough for both."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import procrastinate
import psycopg

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
    until,
)
from bench.contestants.resting import asked_at_rest

UNFINISHED = "SELECT count(*) AS count FROM procrastinate_jobs WHERE status <> 'succeeded'"


@asynccontextmanager
async def opened(ask: Ask) -> AsyncIterator[procrastinate.App]:
    connector = procrastinate.PsycopgConnector(
        conninfo=ask["db"], min_size=ask["connections"], max_size=ask["connections"]
    )
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield app


async def one_tick_runs(ask: Ask) -> Answer:
    async with opened(ask) as app:
        countdown = Countdown(0)

        @app.task(name="job")
        async def job(number: int) -> None:
            countdown.tell()

        async def is_finished() -> bool:
            return not (await app.connector.execute_query_one_async(UNFINISHED))["count"]

        async def create(number: int) -> None:
            await job.defer_async(number=number)

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await by_callers(ask["callers"], count, create)
            await countdown.over()
            await until(is_finished)
            return time.perf_counter() - began

        workers = [
            app.run_worker_async(concurrency=ask["concurrency"], install_signal_handlers=False, name=f"w{number}")
            for number in range(ask["procrastinate_workers"])
        ]
        async with background(*workers):
            await asyncio.sleep(0.5)
            await finished(50)
            return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def signal_latency(ask: Ask) -> Answer:
    moments = Moments()
    async with opened(ask) as app:
        finish = app.job_manager.finish_job

        async def finished(*arguments: Any, **named: Any) -> None:
            await finish(*arguments, **named)
            moments.commit()

        app.job_manager.finish_job = finished

        @app.task(name="job")
        async def job(number: int) -> None:
            moments.handle()

        worker = app.run_worker_async(concurrency=ask["concurrency"], install_signal_handlers=False)
        async with background(worker):
            await asyncio.sleep(0.5)
            return await one_by_one(ask["signals"], moments, lambda number: job.defer_async(number=number))


async def timers(ask: Ask) -> Answer:
    """A job that is scheduled is found by looking: nobody tells the worker when its time has come."""
    clocks = Timers(ask)
    async with opened(ask) as app:

        @app.task(name="job")
        async def job(at: float) -> None:
            clocks.fired(at)

        async def defer(number: int) -> None:
            at = clocks.at(number)
            await job.configure(schedule_at=datetime.fromtimestamp(at, UTC)).defer_async(at=at)

        worker = app.run_worker_async(
            concurrency=ask["concurrency"],
            install_signal_handlers=False,
            fetch_job_polling_interval=ask["poll_ms"] / 1_000,
        )
        async with background(worker):
            return await clocks.set_by(ask["callers"], defer)


async def burst(ask: Ask) -> Answer:
    countdown = Countdown(0)
    async with opened(ask) as app:

        @app.task(name="job")
        async def job(number: int) -> None:
            countdown.tell()

        async def drained(queued: int, count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            for at in range(0, queued, 1_000):
                numbers = range(at, min(at + 1_000, queued))
                await job.batch_defer_async(*({"number": number} for number in numbers))
            began = time.perf_counter()
            async with background(app.run_worker_async(concurrency=ask["concurrency"], install_signal_handlers=False)):
                await countdown.over()
                return countdown.at - began

        await drained(100, 100)
        db = await psycopg.AsyncConnection.connect(ask["db"], autocommit=True)
        await db.execute("VACUUM ANALYZE")
        await db.close()
        return {"per_s": ask["drained"] / await drained(ask["count"], ask["drained"])}


async def idle(ask: Ask) -> Answer:
    async with opened(ask) as app:
        worker = app.run_worker_async(concurrency=ask["concurrency"], install_signal_handlers=False)
        async with background(worker):
            return await asked_at_rest(ask)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    answer(
        {
            "one_tick_runs": one_tick_runs,
            "signal_latency": signal_latency,
            "timers": timers,
            "burst": burst,
            "idle": idle,
        }
    )
