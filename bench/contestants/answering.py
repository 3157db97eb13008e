"""How a contestant is asked: a line of JSON comes in, a line of JSON goes out, and the process ends.

Needs nothing but the standard library, for every contestant begins here. What a library prints goes to stderr.
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

Ask = dict[str, Any]
"""`db` (a URL, or a folder for SQLite), `question`, and the sizes that the question has."""
Answer = dict[str, float]
WARM_UP = 20
REST_S = 0.02
Question = Callable[[Ask], Coroutine[Any, Any, Answer]]


def answer(
    questions: Mapping[str, Question], run: Callable[[Coroutine[Any, Any, Answer]], Answer] = asyncio.run
) -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    out = os.dup(1)
    os.dup2(2, 1)
    ask = json.loads(sys.stdin.readline())
    given = run(questions[ask["question"]](ask))
    os.write(out, json.dumps(given).encode() + b"\n")
    sys.stderr.flush()
    # Some leave threads behind that would keep the process alive, and nothing they could still do is wanted.
    os._exit(0)


def _end_with(parent: int) -> None:
    """Whoever asked may be killed: then nobody waits for an answer, and what was started for it ends too."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


class Countdown:
    """Set when so many things have happened; `at` is when the last of them did."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.at = 0.0
        self._over = asyncio.Event()

    def tell(self) -> None:
        self.left -= 1
        if self.left <= 0:
            self.at = time.perf_counter()
            self._over.set()

    async def over(self, within_s: float = 600) -> None:
        await asyncio.wait_for(self._over.wait(), within_s)


async def by_callers(callers: int, count: int, call: Callable[[int], Awaitable[object]]) -> None:
    """`call` each number below `count`, each by its own call, so many callers at a time."""
    numbers = iter(range(count))

    async def one() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(one() for _ in range(min(callers, count))))


async def until(is_so: Callable[[], Awaitable[bool]], every_s: float = 0.002) -> None:
    """For what a database alone knows."""
    while not await is_so():  # noqa: ASYNC110
        await asyncio.sleep(every_s)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def in_ms(seconds: Sequence[float], prefix: str = "") -> Answer:
    """The latencies that every question about time answers."""
    return {f"{prefix}p50_ms": percentile(seconds, 50) * 1_000, f"{prefix}p95_ms": percentile(seconds, 95) * 1_000}


class Moments:
    """When the handler was called, and when what it did was committed: of one thing at a time."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.handled_at = 0.0
        self.committed = Countdown(1)

    def handle(self) -> None:
        self.handled_at = time.perf_counter()

    def commit(self) -> None:
        self.committed.tell()


class Timers:
    """So many moments, spread evenly over a window that begins when all timers have been set: how late is each?"""

    def __init__(self, ask: Ask) -> None:
        self._count: int = ask["timers"]
        self._begin_at: float = time.time() + ask["lead_s"]
        self._apart_s: float = ask["window_s"] / self._count
        self._late: list[float] = []
        self._all = Countdown(self._count)

    def at(self, number: int) -> float:
        """Seconds since the epoch."""
        return self._begin_at + number * self._apart_s

    def fired(self, at: float) -> None:
        # Too early is no better than too late.
        self._late.append(abs(time.time() - at))
        self._all.tell()

    async def set_by(self, callers: int, set_one: Callable[[int], Awaitable[object]]) -> Answer:
        """Sets all of them, waits until all have fired, and answers."""
        await by_callers(callers, self._count, set_one)
        spare = self._begin_at - time.time()
        if spare < 0:
            raise RuntimeError(f"the timers took {-spare:.0f} s too long to set: give them more with --lead-s")
        await self._all.over()
        return in_ms(self._late)


class Traffic:
    """Many messages by many callers, each of whom waits until its message is received before it sends another: how many
    a second, and how long each takes from its call to its receipt."""

    def __init__(self, count: int) -> None:
        self._receipts = [Countdown(1) for _ in range(count)]

    def received(self, number: int) -> None:
        self._receipts[number].tell()

    async def sent(self, callers: int, send: Callable[[int], Awaitable[object]]) -> Answer:
        took: list[float] = []

        async def one(number: int) -> None:
            began = time.perf_counter()
            await send(number)
            await self._receipts[number].over()
            took.append(self._receipts[number].at - began)

        began = time.perf_counter()
        await by_callers(callers, len(self._receipts), one)
        return {"per_s": len(self._receipts) / (time.perf_counter() - began)} | in_ms(took)


async def one_by_one(count: int, moments: Moments, act: Callable[[int], Awaitable[object]]) -> Answer:
    """How long each takes on a system that has come to rest before it."""
    to_handler, to_commit = [], []
    for number in range(-WARM_UP, count):
        await asyncio.sleep(REST_S)
        moments.begin()
        began = time.perf_counter()
        await act(number)
        await moments.committed.over()
        if number >= 0:
            to_commit.append(moments.committed.at - began)
            to_handler.append(moments.handled_at - began)
    return in_ms(to_commit) | (in_ms(to_handler, "handler_") if moments.handled_at else {})


@asynccontextmanager
async def background(*tasks: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Tasks that are cancelled at the end of the block, unless they have ended."""
    started = [asyncio.create_task(task) for task in tasks]
    try:
        yield started
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)
