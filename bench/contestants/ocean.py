"""Ocean in the process that creates the runs, with a ticker. A tick counts when it is committed.

The process runs as `ocean serve` does.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from bench.contestants.protocol import (
    Countdown,
    Request,
    Result,
    Timers,
    Timestamps,
    Traffic,
    call_concurrently,
    measure_one_by_one,
    respond,
)
from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, Tick, Wait
from ocean.kernel.metrics import Listener, TickSeen
from ocean.process import run_process
from ocean.ticker import ticker

WARM_UP = 50


class Commits(Listener):
    """Calls `on_commit` for every tick once it is committed."""

    def __init__(self, ocean: Ocean) -> None:
        self.on_commit: Callable[[TickSeen], object] = lambda seen: None
        ocean.observed.add_listener(self)

    def expect(self, count: int, outcome: str = "done") -> Countdown:
        """Return a countdown of `count` ticks with that outcome."""
        countdown = Countdown(count)
        self.on_commit = lambda seen: countdown.count() if seen.outcome == outcome else None
        return countdown

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[Any]:
        return _TickContext(self, seen)


class _TickContext:
    """A class instead of a generator-based context manager, because it costs less per tick."""

    __slots__ = ("_commits", "_seen")

    def __init__(self, commits: Commits, seen: TickSeen) -> None:
        self._commits = commits
        self._seen = seen

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._commits.on_commit(self._seen)


def url_of(request: Request) -> str:
    db: str = request["db"]
    return db if "://" in db else f"sqlite:///{db}/ocean.db"


@asynccontextmanager
async def opened(request: Request, *clogs: Clog) -> AsyncIterator[tuple[Ocean, Commits]]:
    async with Ocean.open(url_of(request), clogs=clogs) as ocean, ticker(ocean):
        yield ocean, Commits(ocean)


def clog_of(handler: Callable[[Tick], Awaitable[Outcome]]) -> Clog:
    clog = Clog("bench")
    clog.on_advance(handler)
    return clog


async def runs_a_second(request: Request, handler: Callable[[Tick], Awaitable[Outcome]]) -> Result:
    """Return the rate from the first call until the last run is done."""
    async with opened(request, clog_of(handler)) as (ocean, commits):

        async def create(number: int) -> None:
            await ocean.create_run(session_id=f"s{number % 100}", clog_id="bench", input={"n": number})

        async def finished(count: int) -> float:
            began = time.perf_counter()
            countdown = commits.expect(count)
            await call_concurrently(request["callers"], count, create)
            await countdown.wait()
            return time.perf_counter() - began

        await finished(WARM_UP)
        return {"per_s": request["runs"] / await finished(request["runs"])}


async def one_tick_runs(request: Request) -> Result:
    async def advance(tick: Tick) -> Outcome:
        return Done(tick.input)

    return await runs_a_second(request, advance)


async def ten_ticks(request: Request) -> Result:
    """Each tick stores a result in the run's row."""

    async def advance(tick: Tick) -> Outcome:
        results = (await tick.read(run=True)).run or []
        await tick.write(run=[*results, len(results)])
        return Done(len(results)) if len(results) + 1 == request["steps"] else Continue()

    return _with_steps(request, await runs_a_second(request, advance))


async def ten_steps(request: Request) -> Result:
    async def advance(tick: Tick) -> Outcome:
        for number in range(request["steps"]):
            await tick.step(f"step{number}", len)
        return Done()

    return _with_steps(request, await runs_a_second(request, advance))


def _with_steps(request: Request, runs: Result) -> Result:
    return {"per_s": runs["per_s"] * request["steps"]}


async def signal_latency(request: Request) -> Result:
    timestamps = Timestamps()

    async def advance(tick: Tick) -> Outcome:
        timestamps.mark_handled()
        return Ok()

    async with opened(request, clog_of(advance)) as (ocean, commits):
        run = await ocean.create_run(session_id="s", clog_id="bench")
        commits.on_commit = lambda seen: timestamps.mark_committed()
        return await measure_one_by_one(
            request["signals"], timestamps, lambda number: ocean.signal(run.run_id, {"n": number})
        )


async def signals(request: Request) -> Result:
    """Signals to runs that handle one and wait again."""
    handled: dict[tuple[str, int], int] = {}

    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "signal":
            handled[tick.run_id, tick.number] = tick.input["n"]
        return Wait(for_ms=3_600_000)

    async with opened(request, clog_of(advance)) as (ocean, commits):
        ids = [f"r{number}" for number in range(request["runs"])]
        waiting = commits.expect(len(ids), "wait")
        await call_concurrently(
            64, len(ids), lambda n: ocean.create_run(session_id="s", clog_id="bench", run_id=ids[n], input=0)
        )
        await waiting.wait()
        traffic = Traffic(request["signals"])
        commits.on_commit = lambda seen: traffic.received(handled[seen.run_id, seen.tick])
        return await traffic.measure(
            request["callers"], lambda number: ocean.signal(ids[number % len(ids)], {"n": number})
        )


async def timers(request: Request) -> Result:
    clocks = Timers(request)

    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "created":
            return Wait(until=tick.input)
        clocks.fired(clocks.due_at(int(tick.run_id)))
        return Done()

    async with opened(request, clog_of(advance)) as (ocean, _):

        async def create(number: int) -> None:
            at_ms = round(clocks.due_at(number) * 1_000)
            await ocean.create_run(session_id="s", clog_id="bench", run_id=str(number), input=at_ms)

        return await clocks.measure(request["callers"], create)


if __name__ == "__main__":
    respond(
        {
            "one_tick_runs": one_tick_runs,
            "ten_ticks": ten_ticks,
            "ten_steps": ten_steps,
            "signal_latency": signal_latency,
            "timers": timers,
            "signals": signals,
        },
        run=run_process,
    )
