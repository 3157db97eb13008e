"""huey on SQLite: a consumer of threads in the process that enqueues. As shipped it syncs as SQLite does by default,
which is at every commit (synchronous FULL), in a WAL."""

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

from bench.contestants.answering import Answer, Ask, Moments, Timers, answer, one_by_one


def opened(ask: Ask) -> Any:
    return SqliteHuey(filename=f"{ask['db']}/huey.db")


@asynccontextmanager
async def consuming(huey: Any, ask: Ask) -> AsyncIterator[None]:
    consumer = huey.create_consumer(
        workers=ask["workers"],
        worker_type="thread",
        initial_delay=0.001,
        max_delay=ask["poll_ms"] / 1_000,
        periodic=False,
    )
    consumer._set_signal_handlers = lambda: None
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


class Counting:
    """As a countdown, told by threads."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._over = threading.Event()

    def tell(self) -> None:
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


async def one_tick_runs(ask: Ask) -> Answer:
    huey = opened(ask)
    counting = Counting(0)

    @huey.task()
    def job(number: int) -> int:
        return number

    @huey.post_execute()
    def executed(task: Any, value: Any, error: Any) -> None:
        counting.tell()

    def finished(count: int) -> float:
        nonlocal counting
        counting = Counting(count)
        began = time.perf_counter()
        in_threads(ask["threads"], count, job)
        counting.wait()
        return time.perf_counter() - began

    async with consuming(huey, ask):
        await asyncio.to_thread(finished, 50)
        return {"per_s": ask["runs"] / await asyncio.to_thread(finished, ask["runs"])}


async def signal_latency(ask: Ask) -> Answer:
    huey = opened(ask)
    moments = Moments()
    loop = asyncio.get_running_loop()

    @huey.task()
    def job(number: int) -> int:
        moments.handle()
        return number

    @huey.post_execute()
    def executed(task: Any, value: Any, error: Any) -> None:
        loop.call_soon_threadsafe(moments.commit)

    async with consuming(huey, ask):
        return await one_by_one(ask["signals"], moments, lambda number: asyncio.to_thread(job, number))


async def timers(ask: Ask) -> Answer:
    """Its scheduler looks once a second, and cannot be told to look more often."""
    huey = opened(ask)
    clocks = Timers(ask)
    loop = asyncio.get_running_loop()

    @huey.task()
    def job(at: float) -> None:
        loop.call_soon_threadsafe(clocks.fired, at)

    async def schedule(number: int) -> None:
        at = clocks.at(number)
        await asyncio.to_thread(job.schedule, args=(at,), eta=datetime.fromtimestamp(at))  # noqa: DTZ006

    async with consuming(huey, ask):
        return await clocks.set_by(ask["threads"], schedule)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    answer({"one_tick_runs": one_tick_runs, "signal_latency": signal_latency, "timers": timers})
