"""`ocean bench`: measures how fast Ocean is on a database, with runs in a session that is removed afterwards."""

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
"""Measurements that are slower per run use this many times fewer runs."""
UNFINISHED = ("pending", "active", "waiting")
TIMEOUT_MS = 600_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One result. `key` is its name in JSON."""

    key: str
    what: str
    value: float
    unit: str = "a second"


def bench_clog() -> Clog:
    """Return the clog whose runs are measured."""
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
    """The measurements. The Ocean has only the clog of the bench, so other runs are not touched."""

    def __init__(self, ocean: Ocean, session_id: str, runs: int) -> None:
        self._ocean = ocean
        self._session_id = session_id
        self._runs = runs
        self._fewer = max(runs // FEWER, 1)

    async def measure(self, on_start: Callable[[str], object]) -> list[Figure]:
        """Run all measurements; `on_start` is called with the name of each."""
        figures: list[Figure] = []
        for what, measurement in (
            ("runs of one tick", self._one_tick),
            ("runs of ten ticks", self._ten_ticks),
            ("runs of ten steps", self._ten_steps),
            ("streamed events", self._streamed),
            ("signals, one by one", self._signals),
        ):
            on_start(what)
            figures += await measurement()
        return figures

    async def _one_tick(self) -> list[Figure]:
        """Create runs with a call each, while a ticker works on them."""
        seconds = await self._seconds_for(self._runs, {"do": "end"})
        return [Figure("runsPerSecond", "runs of one tick, created and done", self._runs / seconds)]

    async def _ten_ticks(self) -> list[Figure]:
        seconds = await self._seconds_for(self._fewer, {"do": "ticks", "left": TEN})
        return [Figure("ticksPerSecond", "ticks, ten in a run", self._fewer * TEN / seconds)]

    async def _ten_steps(self) -> list[Figure]:
        seconds = await self._seconds_for(self._fewer, {"do": "steps"})
        return [Figure("stepsPerSecond", "durable steps, ten in a tick", self._fewer * TEN / seconds)]

    async def _streamed(self) -> list[Figure]:
        seconds = await self._seconds_for(1, {"do": "stream", "events": self._runs})
        return [Figure("streamedPerSecond", "events streamed by one handler", self._runs / seconds)]

    async def _signals(self) -> list[Figure]:
        """Measure, with nothing else to do, from the call of `signal` until its tick is committed."""
        run_id = await self._create({"do": "signal"})
        await self._ocean.advance(run_id=run_id)
        times = []
        for _ in range(self._fewer + 1):
            started_at = time.perf_counter()
            await self._ocean.signal(run_id, {"do": "signal"})
            await self._ocean.advance(run_id=run_id)
            times.append((time.perf_counter() - started_at) * 1_000)
        cuts = quantiles(times, n=20, method="inclusive")
        return [
            Figure("signalP50Ms", "a signal and its tick, median", cuts[9], "ms"),
            Figure("signalP95Ms", "a signal and its tick, 95th percentile", cuts[18], "ms"),
        ]

    async def _seconds_for(self, count: int, input: dict[str, Any]) -> float:
        """Create `count` runs and return the seconds until all have ended."""
        numbers = iter(range(count))

        async def caller() -> None:
            for _ in numbers:
                await self._create(input)

        started_at = time.perf_counter()
        async with ticker(self._ocean):
            async with anyio.create_task_group() as callers:
                for _ in range(min(CALLERS, count)):
                    callers.start_soon(caller)
            await self._all_ended()
        return time.perf_counter() - started_at

    async def _all_ended(self) -> None:
        """Wait for the newest run that has not ended; reading each of them would add work to the measurement."""
        while open_runs := (await self._ocean.list_runs(session_id=self._session_id, status=UNFINISHED, limit=1)).runs:
            await self._ocean.result(open_runs[0].run_id, timeout_ms=TIMEOUT_MS)

    async def _create(self, input: dict[str, Any]) -> str:
        run = await self._ocean.create_run(session_id=self._session_id, clog_id=CLOG_ID, input=input)
        return run.run_id


@asynccontextmanager
async def private_session(ocean: Ocean) -> AsyncIterator[str]:
    """Yield a new session id; remove that session at the end, also after Ctrl-C."""
    session_id = f"{CLOG_ID}.{uuid.uuid4()}"
    try:
        yield session_id
    finally:
        with anyio.CancelScope(shield=True):
            await ocean.delete_session(session_id)


async def bench(screen: Screen, url: str, runs: int) -> None:
    """Measure and print the figures."""
    console = Console(stderr=True)
    has_terminal = console.is_terminal and not screen.is_json
    async with Ocean.open(url, clogs=[bench_clog()]) as ocean, private_session(ocean) as session_id:
        with console.status("measuring") if has_terminal else nullcontext() as status:

            def show_progress(what: str) -> None:
                if status is not None:
                    status.update(f"measuring {what}")

            figures = await Bench(ocean, session_id, runs).measure(show_progress)
    facts = store_facts(url)
    if screen.is_json:
        place = {"engine": facts.engine, "version": facts.engine_version, "place": facts.place}
        screen.json({"database": place, "runs": runs, "figures": {each.key: each.value for each in figures}})
        return
    shown = table("what", "figure", "")
    for each in figures:
        shown.add_row(cell(each.what), cell(rounded(each.value)), cell(each.unit))
    screen.show(shown)
    screen.print(
        f"{facts.engine} {facts.engine_version} at {facts.place}; {runs} one-tick runs, the others in proportion"
    )
    screen.print("The runs of the bench are removed. Their events stay in the log until they are swept.")


def rounded(value: float) -> str:
    """Format a figure with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
