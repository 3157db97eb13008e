"""procrastinate on PostgreSQL: asynchronous tasks, concurrent workers, and a pool large enough for both."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import procrastinate
import psycopg

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
    wait_until,
)

UNFINISHED = "SELECT count(*) AS count FROM procrastinate_jobs WHERE status <> 'succeeded'"


@asynccontextmanager
async def opened(request: Request) -> AsyncIterator[procrastinate.App]:
    connector = procrastinate.PsycopgConnector(
        conninfo=request["db"], min_size=request["connections"], max_size=request["connections"]
    )
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield app


async def one_tick_runs(request: Request) -> Result:
    async with opened(request) as app:
        countdown = Countdown(0)

        @app.task(name="job")
        async def job(number: int) -> None:
            countdown.count()

        async def is_finished() -> bool:
            return not (await app.connector.execute_query_one_async(UNFINISHED))["count"]

        async def create(number: int) -> None:
            await job.defer_async(number=number)

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await call_concurrently(request["callers"], count, create)
            await countdown.wait()
            await wait_until(is_finished)
            return time.perf_counter() - began

        workers = [
            app.run_worker_async(concurrency=request["concurrency"], install_signal_handlers=False, name=f"w{number}")
            for number in range(request["procrastinate_workers"])
        ]
        async with background(*workers):
            await asyncio.sleep(0.5)
            await finished(50)
            return {"per_s": request["runs"] / await finished(request["runs"])}


async def signal_latency(request: Request) -> Result:
    timestamps = Timestamps()
    async with opened(request) as app:
        finish = app.job_manager.finish_job

        async def finished(*arguments: Any, **named: Any) -> None:
            await finish(*arguments, **named)
            timestamps.mark_committed()

        app.job_manager.finish_job = finished

        @app.task(name="job")
        async def job(number: int) -> None:
            timestamps.mark_handled()

        worker = app.run_worker_async(concurrency=request["concurrency"], install_signal_handlers=False)
        async with background(worker):
            await asyncio.sleep(0.5)
            return await measure_one_by_one(
                request["signals"], timestamps, lambda number: job.defer_async(number=number)
            )


async def timers(request: Request) -> Result:
    """A scheduled job is found by polling: there is no notification when its time has come."""
    clocks = Timers(request)
    async with opened(request) as app:

        @app.task(name="job")
        async def job(at: float) -> None:
            clocks.fired(at)

        async def defer(number: int) -> None:
            at = clocks.due_at(number)
            await job.configure(schedule_at=datetime.fromtimestamp(at, UTC)).defer_async(at=at)

        worker = app.run_worker_async(
            concurrency=request["concurrency"],
            install_signal_handlers=False,
            fetch_job_polling_interval=request["poll_ms"] / 1_000,
        )
        async with background(worker):
            return await clocks.measure(request["callers"], defer)


async def burst(request: Request) -> Result:
    countdown = Countdown(0)
    async with opened(request) as app:

        @app.task(name="job")
        async def job(number: int) -> None:
            countdown.count()

        async def drained(queued: int, count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            for at in range(0, queued, 1_000):
                numbers = range(at, min(at + 1_000, queued))
                await job.batch_defer_async(*({"number": number} for number in numbers))
            began = time.perf_counter()
            async with background(
                app.run_worker_async(concurrency=request["concurrency"], install_signal_handlers=False)
            ):
                await countdown.wait()
                return countdown.at - began

        await drained(100, 100)
        db = await psycopg.AsyncConnection.connect(request["db"], autocommit=True)
        await db.execute("VACUUM ANALYZE")
        await db.close()
        return {"per_s": request["drained"] / await drained(request["count"], request["drained"])}


async def idle(request: Request) -> Result:
    async with opened(request) as app:
        worker = app.run_worker_async(concurrency=request["concurrency"], install_signal_handlers=False)
        async with background(worker):
            return await count_idle_transactions(request)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    respond(
        {
            "one_tick_runs": one_tick_runs,
            "signal_latency": signal_latency,
            "timers": timers,
            "burst": burst,
            "idle": idle,
        }
    )
