"""huey on SQLite: a consumer with threads in the process that enqueues. By default it syncs as SQLite does, at every
commit (synchronous FULL), in WAL mode."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from huey import SqliteHuey

from bench.contestants.protocol import Request, Result, Timers, Timestamps, measure_one_by_one, respond


def opened(request: Request) -> Any:
    return SqliteHuey(filename=f"{request['db']}/huey.db")


@asynccontextmanager
async def consuming(huey: Any, request: Request) -> AsyncIterator[None]:
    consumer = huey.create_consumer(
        workers=request["workers"],
        worker_type="thread",
        initial_delay=0.001,
        max_delay=request["poll_ms"] / 1_000,
        periodic=False,
    )
    consumer._set_signal_handlers = lambda: None
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


class ThreadCountdown:
    """A countdown for threads."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._over = threading.Event()

    def count(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left <= 0:
                self._over.set()

    def wait(self) -> None:
        assert self._over.wait(600)


def in_threads(callers: int, count: int, call: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(callers) as threads:
        for _ in threads.map(call, range(count)):
            pass


async def one_tick_runs(request: Request) -> Result:
    huey = opened(request)
    countdown = ThreadCountdown(0)

    @huey.task()
    def job(number: int) -> int:
        return number

    @huey.post_execute()
    def executed(task: Any, value: Any, error: Any) -> None:
        countdown.count()

    def finished(count: int) -> float:
        nonlocal countdown
        countdown = ThreadCountdown(count)
        began = time.perf_counter()
        in_threads(request["threads"], count, job)
        countdown.wait()
        return time.perf_counter() - began

    async with consuming(huey, request):
        await asyncio.to_thread(finished, 50)
        return {"per_s": request["runs"] / await asyncio.to_thread(finished, request["runs"])}


async def signal_latency(request: Request) -> Result:
    huey = opened(request)
    timestamps = Timestamps()
    loop = asyncio.get_running_loop()

    @huey.task()
    def job(number: int) -> int:
        timestamps.mark_handled()
        return number

    @huey.post_execute()
    def executed(task: Any, value: Any, error: Any) -> None:
        loop.call_soon_threadsafe(timestamps.mark_committed)

    async with consuming(huey, request):
        return await measure_one_by_one(request["signals"], timestamps, lambda number: asyncio.to_thread(job, number))


async def timers(request: Request) -> Result:
    """Its scheduler polls once a second, which cannot be shortened."""
    huey = opened(request)
    clocks = Timers(request)
    loop = asyncio.get_running_loop()

    @huey.task()
    def job(at: float) -> None:
        loop.call_soon_threadsafe(clocks.fired, at)

    async def schedule(number: int) -> None:
        at = clocks.due_at(number)
        await asyncio.to_thread(job.schedule, args=(at,), eta=datetime.fromtimestamp(at))  # noqa: DTZ006

    async with consuming(huey, request):
        return await clocks.measure(request["threads"], schedule)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    respond({"one_tick_runs": one_tick_runs, "signal_latency": signal_latency, "timers": timers})
