"""Ocean in a database that is already full, without a ticker: the cost of each verb, one call at a time."""

import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from bench.contestants.copy_runs import copy_in_postgres, copy_in_sqlite
from bench.contestants.ocean import url_of
from bench.contestants.protocol import Request, Result, percentile, respond
from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, Tick, Wait
from ocean.process import run_process

DAY_MS = 86_400_000
WARM_UP = 20
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

clog = Clog("bench")


@clog.on_advance
async def advance(tick: Tick) -> Outcome:
    """The input of a run determines what becomes of it."""
    match tick.input or {}:
        case {"becomes": "finished"}:
            return Done()
        case {"becomes": "sleeping"}:
            return Wait(for_ms=30 * DAY_MS)
        case {"becomes": "events", "events": events}:
            for number in range(events):
                await tick.emit("counted", {"n": number})
            return Done()
        case {"becomes": "old", "ticks": ticks}:
            return Continue({"becomes": "old", "ticks": ticks - 1}) if ticks else Ok()
    return Ok()


async def growth(request: Request) -> Result:
    target = await fill(request)
    async with Ocean.open(url_of(request), clogs=[clog]) as ocean:
        if target is None:
            target = (await ocean.create_run(session_id="s", clog_id="bench")).run_id
        run_id: str = target

        async def advance_one(name: str | None) -> None:
            poked = await ocean.advance(run_id=name, max_ticks=1, concurrency=1)
            assert poked.advanced == 1, poked

        created = await _median_ms(request, lambda _: ocean.create_run(session_id="s", clog_id="bench"))
        # Twice, so that there is a signal for every claim and for every tick.
        signalled = [await _median_ms(request, lambda number: ocean.signal(run_id, {"n": number})) for _ in range(2)]
        return {
            "create_ms": created,
            "signal_ms": min(signalled),
            "claim_ms": await _median_ms(request, lambda _: advance_one(None)),
            "tick_ms": await _median_ms(request, lambda _: advance_one(run_id)),
        }


async def _median_ms(request: Request, act: Callable[[int], Awaitable[object]]) -> float:
    took = []
    for number in range(WARM_UP + request["calls"]):
        began = time.perf_counter()
        await act(number)
        took.append(time.perf_counter() - began)
    return percentile(took[WARM_UP:], 50) * 1_000


async def fill(request: Request) -> str | None:
    """Fill the database; return the run to signal, if it must be a certain one."""
    state, count = request["state"], request["count"]
    if state == "empty":
        return None
    if state == "old":
        await _make_old_run(request)
        return "model"
    async with Ocean.open(url_of(request), clogs=[clog]) as ocean:
        about = {"becomes": state, "events": request["events_each"]}
        await ocean.create_run(session_id="s", clog_id="bench", run_id="model", input=about)
        if state != "pending":
            await ocean.advance(max_ticks=1)
    await _copy(request, count)
    return None


async def _copy(request: Request, count: int) -> None:
    if "://" not in request["db"]:
        copy_in_sqlite(f"{request['db']}/ocean.db", "model", count)
        return
    await copy_in_postgres(request["db"], "model", count)
    await _analyze(request["db"])


async def _make_old_run(request: Request) -> None:
    """Make one run of many ticks, without waiting for a disk."""
    is_sqlite = "://" not in request["db"]
    if is_sqlite:
        with TemporaryDirectory(dir=MEMORY) as memory:
            await _age(f"sqlite:///{memory}/ocean.db", request["count"])
            shutil.copy(f"{memory}/ocean.db", request["db"])
        return
    await _set_asynchronous_commit(request["db"], is_on=True)
    await _age(request["db"], request["count"])
    await _set_asynchronous_commit(request["db"], is_on=False)


async def _age(url: str, ticks: int) -> None:
    async with Ocean.open(url, clogs=[clog]) as ocean:
        about = {"becomes": "old", "ticks": ticks}
        await ocean.create_run(session_id="s", clog_id="bench", run_id="model", input=about)
        while (await ocean.advance(budget_ms=60_000)).due_now:
            pass


async def _set_asynchronous_commit(url: str, *, is_on: bool) -> None:
    db = await asyncpg.connect(url)
    name = await db.fetchval("SELECT current_database()")
    how = "SET synchronous_commit = off" if is_on else "RESET synchronous_commit"
    await db.execute(f'ALTER DATABASE "{name}" {how}')
    await db.close()


async def burst(request: Request) -> Result:
    """Create many runs at once and execute some before the planner has new statistics."""
    async with Ocean.open(url_of(request), clogs=[clog]) as ocean:
        for _ in range(100):
            await ocean.create_run(session_id="s", clog_id="bench", input={"becomes": "finished"})
        await _drained(ocean, 100)
        await _analyze(request["db"])
        await ocean.create_run(session_id="s", clog_id="bench", run_id="model", input={"becomes": "finished"})
        await copy_in_postgres(request["db"], "model", request["count"])
        return {"per_s": request["drained"] / await _drained(ocean, request["drained"])}


async def _drained(ocean: Ocean, count: int) -> float:
    done, began = 0, time.perf_counter()
    while done < count:
        done += (await ocean.advance(budget_ms=60_000, max_ticks=count - done)).advanced
    return time.perf_counter() - began


async def _analyze(url: str) -> None:
    db = await asyncpg.connect(url, command_timeout=900)
    await db.execute("VACUUM ANALYZE")
    # Otherwise the copied pages are still being written and delay every flush.
    with suppress(asyncpg.InsufficientPrivilegeError):
        await db.execute("CHECKPOINT")
    await db.close()


if __name__ == "__main__":
    respond({"growth": growth, "burst": burst}, run=run_process)
