"""A world with the schedule clog and a target, at the start of an hour."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from clogs.schedule import schedule
from ocean import Clog, Done, Ok, Outcome, RunInfo, Tick
from ocean.testing import World, world
from tests.invariants import check

HOUR = 3_600_000
HOURLY = {"cron": "0 * * * *", "target": {"clog_id": "job"}}

job = Clog("job")
job_that_waits = Clog("slow")
closed = Clog("closed", generic=["call"])


@job.on_advance
async def do(tick: Tick) -> Outcome:
    return Done(tick.input)


@job_that_waits.on_advance
async def wait(tick: Tick) -> Outcome:
    return Done() if tick.reason == "signal" else Ok()


@closed.on_advance
async def keep(tick: Tick) -> Outcome:
    return Ok()


CLOGS = [schedule, job, job_that_waits, closed]


@asynccontextmanager
async def hours(clogs: list[Clog] | None = None) -> AsyncIterator[World]:
    async with world(clogs=CLOGS if clogs is None else clogs) as w:
        w.clock.advance(-w.clock.now() % HOUR)
        yield w
        await check(w)


async def add(w: World, **fields: Any) -> str:
    made = await w.ocean.call_clog(clog_id="schedule", session_id="s", method="add", payload=_spec_of(fields))
    await w.drain()
    run_id: str = made["run_id"]
    return run_id


def _spec_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with these fields; None removes one."""
    return {name: value for name, value in (HOURLY | fields).items() if value is not None}


async def look(w: World, run_id: str) -> RunInfo:
    run = await w.ocean.get_run(run_id)
    assert run is not None
    return run


async def fired(w: World, run_id: str, begin: int) -> list[int]:
    """Return the intended times of the runs, in hours after the start."""
    page = await w.ocean.list_runs(parent_run_id=run_id)
    return sorted((run.attributes["intended_at"] - begin) // HOUR for run in page.runs)


async def emitted(w: World, run_id: str, type: str) -> list[Any]:
    return [event.payload for event in await w.ocean.read_events(run_id, types=[type])]
