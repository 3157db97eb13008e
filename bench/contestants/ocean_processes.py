"""Several processes of Ocean on one database: each claims runs until nothing is due."""

import asyncio
import multiprocessing
import time
from typing import Any

from bench.contestants.protocol import Request, Result, call_concurrently, respond
from ocean import Clog, Continue, Done, Ocean, Outcome, SystemClock, Tick
from ocean.compose import open_store
from ocean.process import run_process
from ocean.stores.postgres.store import PostgresStore


def counting(ticks: int) -> Clog:
    """Return a clog whose ticks read a row, emit an event and write the row."""
    clog = Clog("counter")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        n = (rows.run or 0) + 1
        await tick.emit("counted", {"n": n})
        await tick.write(run=n)
        return Done(n) if n == ticks else Continue()

    return clog


async def work(request: Request, start_at: float) -> tuple[float, int, int]:
    """Return when this process was done, how many ticks it committed, and in how many round trips."""
    store = await open_store(request["db"], SystemClock())
    assert isinstance(store, PostgresStore)
    ocean = Ocean(store, [counting(request["ticks"])], store.clock)
    await ocean.start()
    await asyncio.sleep(max(start_at - time.time(), 0))
    ticks, before, done_at = 0, store.pool.round_trips, start_at
    while (
        poked := await ocean.advance(budget_ms=60_000, concurrency=request["concurrency"])
    ).advanced or poked.due_now:
        ticks += poked.advanced
        done_at = time.time()
    spent = store.pool.round_trips - before
    await ocean.close()
    return done_at, ticks, spent


def in_a_process(request: Request, start_at: float) -> tuple[float, int, int]:
    return asyncio.run(work(request, start_at))


async def together(request: Request) -> Result:
    async with Ocean.open(request["db"], clogs=[counting(request["ticks"])]) as ocean:

        async def create(number: int) -> Any:
            return await ocean.create_run(session_id=f"s{number % 100}", clog_id="counter", input={})

        await call_concurrently(64, request["runs"], create)
    start_at = time.time() + request["lead_s"]
    with multiprocessing.get_context("spawn").Pool(request["processes"]) as pool:
        done = pool.starmap(in_a_process, [(request, start_at)] * request["processes"])
    ticks, trips = sum(each[1] for each in done), sum(each[2] for each in done)
    assert ticks == request["runs"] * request["ticks"], done
    return {"per_s": ticks / (max(each[0] for each in done) - start_at), "trips": trips / ticks}


if __name__ == "__main__":
    respond({"together": together}, run=run_process)
