"""`ocean bench`: how fast Ocean is on this database, by runs in a session of its own that is removed afterwards."""

import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import anyio
from rich.console import Console

from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, Tick
from ocean.cli.output import Screen, cell, table
from ocean.compose import store_facts
from ocean.ticker import ticker

CLOG_ID = "ocean.bench"
CALLERS = 64
TEN = 10
FEWER = 10
"""Of what is measured one by one there are so many times fewer."""
UNFINISHED = ("pending", "active", "waiting")
LONGEST_MS = 600_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One answer. `key` names it in JSON."""

    key: str
    what: str
    value: float
    unit: str = "a second"


def bench_clog() -> Clog:
    clog = Clog(CLOG_ID, generic=["delete"])

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        match tick.input:
            case {"do": "ticks", "left": int(left)}:
                return Continue({"do": "ticks", "left": left - 1}) if left > 1 else Done()
            case {"do": "steps"}:
                for number in range(TEN):
                    await tick.step(f"step {number}", lambda key: {"key": key})
                return Done()
            case {"do": "stream", "events": int(events)}:
                for number in range(events):
                    await tick.stream("word", {"n": number})
                return Done()
            case {"do": "signal"}:
                return Ok()
            case _:
                return Done()

    return clog


class Bench:
    """On an Ocean that has the bench's clog and no other: nobody else's runs are touched."""

    def __init__(self, ocean: Ocean, session_id: str, runs: int) -> None:
        self._ocean = ocean
        self._session_id = session_id
        self._runs = runs
        self._fewer = max(runs // FEWER, 1)

    async def measured(self, told: Callable[[str], object]) -> list[Figure]:
        figures: list[Figure] = []
        for what, measure in (
            ("runs of one tick", self._one_tick),
            ("runs of ten ticks", self._ten_ticks),
            ("runs of ten steps", self._ten_steps),
            ("streamed events", self._streamed),
            ("signals, one by one", self._signals),
        ):
            told(what)
            figures += await measure()
        return figures

    async def _one_tick(self) -> list[Figure]:
        """Each created by a call of its own, while a ticker works on them."""
        seconds = await self._finished(self._runs, {"do": "end"})
        return [Figure("runsPerSecond", "runs, created and over in one tick", self._runs / seconds)]

    async def _ten_ticks(self) -> list[Figure]:
        seconds = await self._finished(self._fewer, {"do": "ticks", "left": TEN})
        return [Figure("ticksPerSecond", "ticks, ten to a run", self._fewer * TEN / seconds)]

    async def _ten_steps(self) -> list[Figure]:
        seconds = await self._finished(self._fewer, {"do": "steps"})
        return [Figure("stepsPerSecond", "durable steps, ten to a tick", self._fewer * TEN / seconds)]

    async def _streamed(self) -> list[Figure]:
        seconds = await self._finished(1, {"do": "stream", "events": self._runs})
        return [Figure("streamedPerSecond", "events that one handler streams", self._runs / seconds)]

    async def _signals(self) -> list[Figure]:
        """On a system at rest: from the call of `signal` until the tick that it woke is committed."""
        run_id = await self._create({"do": "signal"})
        await self._ocean.advance(run_id=run_id)
        times = []
        for _ in range(self._fewer + 1):
            begun = time.perf_counter()
            await self._ocean.signal(run_id, {"do": "signal"})
            await self._ocean.advance(run_id=run_id)
            times.append((time.perf_counter() - begun) * 1_000)
        cuts = quantiles(times, n=20, method="inclusive")
        return [
            Figure("signalP50Ms", "a signal and its tick, half of them within", cuts[9], "ms"),
            Figure("signalP95Ms", "a signal and its tick, 95 of 100 within", cuts[18], "ms"),
        ]

    async def _finished(self, count: int, input: dict[str, Any]) -> float:
        """Seconds until so many runs were created and have ended."""
        numbers = iter(range(count))

        async def caller() -> None:
            for _ in numbers:
                await self._create(input)

        begun = time.perf_counter()
        async with ticker(self._ocean):
            async with anyio.create_task_group() as callers:
                for _ in range(min(CALLERS, count)):
                    callers.start_soon(caller)
            await self._all_ended()
        return time.perf_counter() - begun

    async def _all_ended(self) -> None:
        """Waits for the newest that has not; looking at each would be work of its own."""
        while open_runs := (await self._ocean.list_runs(session_id=self._session_id, status=UNFINISHED, limit=1)).runs:
            await self._ocean.result(open_runs[0].run_id, timeout_ms=LONGEST_MS)

    async def _create(self, input: dict[str, Any]) -> str:
        run = await self._ocean.create_run(session_id=self._session_id, clog_id=CLOG_ID, input=input)
        return run.run_id


@asynccontextmanager
async def session_of_its_own(ocean: Ocean) -> AsyncIterator[str]:
    """Removed at the end, also after Ctrl-C."""
    session_id = f"{CLOG_ID}.{uuid.uuid4()}"
    try:
        yield session_id
    finally:
        with anyio.CancelScope(shield=True):
            await ocean.delete_session(session_id)


async def bench(screen: Screen, url: str, runs: int) -> None:
    console = Console(stderr=True)
    is_watched = console.is_terminal and not screen.is_json
    async with Ocean.open(url, clogs=[bench_clog()]) as ocean, session_of_its_own(ocean) as session_id:
        with console.status("measuring") if is_watched else nullcontext() as status:

            def told(what: str) -> None:
                if status is not None:
                    status.update(f"measuring {what}")

            figures = await Bench(ocean, session_id, runs).measured(told)
    facts = store_facts(url)
    if screen.is_json:
        place = {"engine": facts.engine, "version": facts.engine_version, "place": facts.place}
        screen.json({"database": place, "runs": runs, "figures": {each.key: each.value for each in figures}})
        return
    shown = table("what", "figure", "")
    for each in figures:
        shown.add_row(cell(each.what), cell(rounded(each.value)), cell(each.unit))
    screen.show(shown)
    screen.say(
        f"{facts.engine} {facts.engine_version} at {facts.place}; {runs} runs of one tick, the others in proportion"
    )
    screen.say("Its runs are removed. Their events stay in the log until they are swept.")


def rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
