"""The protocol between the bench and a contestant, and the parts that contestants share.

A contestant reads one line of JSON, does the work, writes one line of JSON and exits. What libraries print goes to
stderr. Only the standard library is used here, because every contestant imports this module.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

Request = dict[str, Any]
"""`db` (a URL, or a folder for SQLite), `benchmark`, and the sizes of that benchmark."""
Result = dict[str, float]
WARM_UP = 20
REST_S = 0.02
Benchmark = Callable[[Request], Coroutine[Any, Any, Result]]


def respond(
    questions: Mapping[str, Benchmark], run: Callable[[Coroutine[Any, Any, Result]], Result] = asyncio.run
) -> None:
    """Read the request, run the benchmark that it names, and write the result."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    out = os.dup(1)
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    result = run(questions[request["benchmark"]](request))
    os.write(out, json.dumps(result).encode() + b"\n")
    sys.stderr.flush()
    # Some libraries leave threads behind that would keep the process alive.
    os._exit(0)


def _end_with(parent: int) -> None:
    """End this process and all that it started when the bench is killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


class Countdown:
    """Waits for `count` events; `at` is the time of the last one."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.at = 0.0
        self._over = asyncio.Event()

    def count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            self.at = time.perf_counter()
            self._over.set()

    async def wait(self, within_s: float = 600) -> None:
        await asyncio.wait_for(self._over.wait(), within_s)


async def call_concurrently(callers: int, count: int, call: Callable[[int], Awaitable[object]]) -> None:
    """Call `call` with each number below `count`, from `callers` concurrent tasks."""
    numbers = iter(range(count))

    async def one() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(one() for _ in range(min(callers, count))))


async def wait_until(is_so: Callable[[], Awaitable[bool]], every_s: float = 0.002) -> None:
    """Poll until `is_so` is true, for what can only be seen in the database."""
    while not await is_so():  # noqa: ASYNC110
        await asyncio.sleep(every_s)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def latencies_ms(seconds: Sequence[float], prefix: str = "") -> Result:
    """Return the p50 and p95 of latencies, in milliseconds."""
    return {f"{prefix}p50_ms": percentile(seconds, 50) * 1_000, f"{prefix}p95_ms": percentile(seconds, 95) * 1_000}


class Timestamps:
    """When the handler of the current signal was called, and when its work was committed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.handled_at = 0.0
        self.committed = Countdown(1)

    def mark_handled(self) -> None:
        self.handled_at = time.perf_counter()

    def mark_committed(self) -> None:
        self.committed.count()


class Timers:
    """Due times spread evenly over a window that begins when all timers are set; measures how late each fires."""

    def __init__(self, request: Request) -> None:
        self._count: int = request["timers"]
        self._begin_at: float = time.time() + request["lead_s"]
        self._apart_s: float = request["window_s"] / self._count
        self._late: list[float] = []
        self._all = Countdown(self._count)

    def due_at(self, number: int) -> float:
        """Return the time of a timer, in seconds since the epoch."""
        return self._begin_at + number * self._apart_s

    def fired(self, at: float) -> None:
        # Early counts like late.
        self._late.append(abs(time.time() - at))
        self._all.count()

    async def measure(self, callers: int, set_one: Callable[[int], Awaitable[object]]) -> Result:
        """Set all timers, wait until all have fired, and return how late they were."""
        await call_concurrently(callers, self._count, set_one)
        spare = self._begin_at - time.time()
        if spare < 0:
            raise RuntimeError(f"setting the timers took {-spare:.0f} s too long: increase --lead-s")
        await self._all.wait()
        return latencies_ms(self._late)


class Traffic:
    """Messages of concurrent callers, each of which waits for the receipt of its message before it sends the next."""

    def __init__(self, count: int) -> None:
        self._receipts = [Countdown(1) for _ in range(count)]

    def received(self, number: int) -> None:
        self._receipts[number].count()

    async def measure(self, callers: int, send: Callable[[int], Awaitable[object]]) -> Result:
        """Send all messages; return how many per second, and the latencies from call to receipt."""
        took: list[float] = []

        async def one(number: int) -> None:
            began = time.perf_counter()
            await send(number)
            await self._receipts[number].wait()
            took.append(self._receipts[number].at - began)

        began = time.perf_counter()
        await call_concurrently(callers, len(self._receipts), one)
        return {"per_s": len(self._receipts) / (time.perf_counter() - began)} | latencies_ms(took)


async def measure_one_by_one(count: int, timestamps: Timestamps, act: Callable[[int], Awaitable[object]]) -> Result:
    """Send signals one by one, each to a system at rest, and return the latencies."""
    to_handler, to_commit = [], []
    for number in range(-WARM_UP, count):
        await asyncio.sleep(REST_S)
        timestamps.reset()
        began = time.perf_counter()
        await act(number)
        await timestamps.committed.wait()
        if number >= 0:
            to_commit.append(timestamps.committed.at - began)
            to_handler.append(timestamps.handled_at - began)
    return latencies_ms(to_commit) | (latencies_ms(to_handler, "handler_") if timestamps.handled_at else {})


@asynccontextmanager
async def background(*tasks: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run tasks during the block and cancel them at its end."""
    started = [asyncio.create_task(task) for task in tasks]
    try:
        yield started
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)
