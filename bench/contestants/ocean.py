"""Ocean, in the process that creates the runs: a ticker moves them. A tick counts when it is committed.

Run as `ocean serve` is.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

from bench.contestants.answering import Answer, Ask, Countdown, Moments, Timers, Traffic, answer, by_callers, one_by_one
from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, Tick, Wait
from ocean.kernel.metrics import Listener, TickSeen
from ocean.process import run_process
from ocean.ticker import ticker

WARM_UP = 50


class Commits(Listener):
    """Tells somebody of every tick, once it is committed."""

    def __init__(self, ocean: Ocean) -> None:
        self.tell: Callable[[TickSeen], object] = lambda seen: None
        ocean.observed.add_listener(self)

    def expect(self, count: int, outcome: str = "done") -> Countdown:
        """So many ticks with that outcome."""
        countdown = Countdown(count)
        self.tell = lambda seen: countdown.tell() if seen.outcome == outcome else None
        return countdown

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[Any]:
        return _Told(self, seen)


class _Told:
    """A class, so that to be told costs little beside what it tells of."""

    __slots__ = ("_commits", "_seen")

    def __init__(self, commits: Commits, seen: TickSeen) -> None:
        self._commits = commits
        self._seen = seen

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._commits.tell(self._seen)


def url_of(ask: Ask) -> str:
    db: str = ask["db"]
    return db if "://" in db else f"sqlite:///{db}/ocean.db"


@asynccontextmanager
async def opened(ask: Ask, *clogs: Clog) -> AsyncIterator[tuple[Ocean, Commits]]:
    async with Ocean.open(url_of(ask), clogs=clogs) as ocean, ticker(ocean):
        yield ocean, Commits(ocean)


def clog_of(handler: Callable[[Tick], Awaitable[Outcome]]) -> Clog:
    clog = Clog("bench")
    clog.on_advance(handler)
    return clog


async def runs_a_second(ask: Ask, handler: Callable[[Tick], Awaitable[Outcome]]) -> Answer:
    """From the first call until the last run is done."""
    async with opened(ask, clog_of(handler)) as (ocean, commits):

        async def create(number: int) -> None:
            await ocean.create_run(session_id=f"s{number % 100}", clog_id="bench", input={"n": number})

        async def finished(count: int) -> float:
            began = time.perf_counter()
            countdown = commits.expect(count)
            await by_callers(ask["callers"], count, create)
            await countdown.over()
            return time.perf_counter() - began

        await finished(WARM_UP)
        return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def one_tick_runs(ask: Ask) -> Answer:
    async def advance(tick: Tick) -> Outcome:
        return Done(tick.input)

    return await runs_a_second(ask, advance)


async def ten_ticks(ask: Ask) -> Answer:
    """Each keeps a result in the run's row."""

    async def advance(tick: Tick) -> Outcome:
        results = (await tick.read(run=True)).run or []
        await tick.write(run=[*results, len(results)])
        return Done(len(results)) if len(results) + 1 == ask["steps"] else Continue()

    return _with_steps(ask, await runs_a_second(ask, advance))


async def ten_steps(ask: Ask) -> Answer:
    async def advance(tick: Tick) -> Outcome:
        for number in range(ask["steps"]):
            await tick.step(f"step{number}", len)
        return Done()

    return _with_steps(ask, await runs_a_second(ask, advance))


def _with_steps(ask: Ask, runs: Answer) -> Answer:
    return {"per_s": runs["per_s"] * ask["steps"]}


async def signal_latency(ask: Ask) -> Answer:
    moments = Moments()

    async def advance(tick: Tick) -> Outcome:
        moments.handle()
        return Ok()

    async with opened(ask, clog_of(advance)) as (ocean, commits):
        run = await ocean.create_run(session_id="s", clog_id="bench")
        commits.tell = lambda seen: moments.commit()
        return await one_by_one(ask["signals"], moments, lambda number: ocean.signal(run.run_id, {"n": number}))


async def signals(ask: Ask) -> Answer:
    """Into runs that wait for them, and wait again."""
    handled: dict[tuple[str, int], int] = {}

    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "signal":
            handled[tick.run_id, tick.number] = tick.input["n"]
        return Wait(for_ms=3_600_000)

    async with opened(ask, clog_of(advance)) as (ocean, commits):
        ids = [f"r{number}" for number in range(ask["runs"])]
        waiting = commits.expect(len(ids), "wait")
        await by_callers(
            64, len(ids), lambda n: ocean.create_run(session_id="s", clog_id="bench", run_id=ids[n], input=0)
        )
        await waiting.over()
        traffic = Traffic(ask["signals"])
        commits.tell = lambda seen: traffic.received(handled[seen.run_id, seen.tick])
        return await traffic.sent(ask["callers"], lambda number: ocean.signal(ids[number % len(ids)], {"n": number}))


async def timers(ask: Ask) -> Answer:
    clocks = Timers(ask)

    async def advance(tick: Tick) -> Outcome:
        if tick.reason == "created":
            return Wait(until=tick.input)
        clocks.fired(clocks.at(int(tick.run_id)))
        return Done()

    async with opened(ask, clog_of(advance)) as (ocean, _):

        async def create(number: int) -> None:
            at_ms = round(clocks.at(number) * 1_000)
            await ocean.create_run(session_id="s", clog_id="bench", run_id=str(number), input=at_ms)

        return await clocks.set_by(ask["callers"], create)


if __name__ == "__main__":
    answer(
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
