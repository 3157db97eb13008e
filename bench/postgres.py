"""How many ticks a second, and how many round trips each, on PostgreSQL?

Several processes advance the same runs, each of which counts to three in its own row: one tick, one read, one write
and two events at a time. What is printed depends on the machine, the round trips do not.

    python bench/postgres.py --db postgresql://user@host/an_empty_database --runs 500 --processes 1
"""

import argparse
import asyncio
import multiprocessing
import time

from ocean import Clog, Continue, Done, Outcome, SystemClock, Tick
from ocean.compose import Ocean, open_store
from ocean.stores.postgres.store import PostgresStore


def counter() -> Clog:
    clog = Clog("counter")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        rows = await tick.read(run=True)
        n = (rows.run or 0) + 1
        await tick.emit("counted", {"n": n})
        await tick.write(run=n)
        return Done(n) if n == 3 else Continue()

    return clog


async def work(url: str, concurrency: int) -> tuple[int, int]:
    """Until nothing is due. Answers how many ticks this process has committed, and in how many round trips."""
    store = await open_store(url, SystemClock())
    assert isinstance(store, PostgresStore)
    ocean = Ocean(store, [counter()], store.clock)
    await ocean.start()
    ticks, before = 0, store.link.round_trips
    while (poked := await ocean.advance(budget_ms=60_000, concurrency=concurrency)).advanced or poked.due_now:
        ticks += poked.advanced
    spent = store.link.round_trips - before
    await ocean.close()
    return ticks, spent


def in_a_process(url: str, concurrency: int) -> tuple[int, int]:
    return asyncio.run(work(url, concurrency))


async def fill(url: str, runs: int) -> float:
    began = time.perf_counter()
    async with Ocean.open(url, clogs=[counter()]) as ocean:
        for at in range(0, runs, 50):
            made = [
                ocean.create_run(session_id="s", clog_id="counter", input={}) for _ in range(at, min(at + 50, runs))
            ]
            await asyncio.gather(*made)
    return runs / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", required=True)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=16)
    asked = parser.parse_args()
    print(f"creations a second, 50 at once: {asyncio.run(fill(asked.db, asked.runs)):.0f}")
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        done = pool.starmap(in_a_process, [(asked.db, asked.concurrency)] * asked.processes)
    seconds = time.perf_counter() - began
    ticks, trips = (sum(each) for each in zip(*done, strict=True))
    print(f"{asked.processes} processes: {ticks / seconds:.0f} ticks a second, {trips / ticks:.2f} round trips a tick")


if __name__ == "__main__":
    main()
