"""Ocean, in the process that creates the runs: a ticker moves them. A tick counts when it is committed."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from bench.contestants.answering import Answer, Ask, Countdown, Moments, answer, by_callers, one_by_one
from ocean import Clog, Done, Ocean, Ok, Outcome, Tick
from ocean.kernel.observing import Listener, TickSeen
from ocean.ticking import ticker

WARM_UP = 50


class Commits(Listener):
    """Tells somebody of every tick, once it is committed."""

    def __init__(self, ocean: Ocean) -> None:
        self.tell: Callable[[], None] = Countdown(0).tell
        ocean.observed.tell(self)

    def expect(self, count: int) -> Countdown:
        countdown = Countdown(count)
        self.tell = countdown.tell
        return countdown

    def around_tick(self, seen: TickSeen) -> AbstractContextManager[Any]:
        return self._around()

    @contextmanager
    def _around(self) -> Iterator[None]:
        yield
        self.tell()


def url_of(ask: Ask) -> str:
    db: str = ask["db"]
    return db if "://" in db else f"sqlite:///{db}/ocean.db"


@asynccontextmanager
async def opened(ask: Ask, *clogs: Clog) -> AsyncIterator[tuple[Ocean, Commits]]:
    async with Ocean.open(url_of(ask), clogs=clogs) as ocean, ticker(ocean):
        yield ocean, Commits(ocean)


def finishing() -> Clog:
    clog = Clog("finishing")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Done(tick.input)

    return clog


async def one_tick_runs(ask: Ask) -> Answer:
    async with opened(ask, finishing()) as (ocean, commits):

        async def create(number: int) -> None:
            await ocean.create_run(session_id=f"s{number % 100}", clog_id="finishing", input={"n": number})

        async def finished(count: int) -> float:
            began = time.perf_counter()
            countdown = commits.expect(count)
            await by_callers(ask["callers"], count, create)
            await countdown.over()
            return time.perf_counter() - began

        await finished(WARM_UP)
        return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def signal_latency(ask: Ask) -> Answer:
    moments = Moments()
    clog = Clog("answering")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        moments.handle()
        return Ok()

    async with opened(ask, clog) as (ocean, commits):
        run = await ocean.create_run(session_id="s", clog_id="answering")
        commits.tell = moments.commit
        return await one_by_one(ask["signals"], moments, lambda number: ocean.signal(run.run_id, {"n": number}))


if __name__ == "__main__":
    answer({"one_tick_runs": one_tick_runs, "signal_latency": signal_latency})
