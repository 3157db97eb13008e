"""Ocean in a database that is already full of something, poked by hand: what does each verb cost, one at a time?"""

import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from bench.contestants.answering import Answer, Ask, answer, percentile
from bench.contestants.filling import copy_in_postgres, copy_in_sqlite
from bench.contestants.ocean import url_of
from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, Tick, Wait
from ocean.process import run_process

DAY_MS = 86_400_000
WARM_UP = 20
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

clog = Clog("bench")


@clog.on_advance
async def advance(tick: Tick) -> Outcome:
    """What a run is created with says what it becomes."""
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


async def growth(ask: Ask) -> Answer:
    target = await fill(ask)
    async with Ocean.open(url_of(ask), clogs=[clog]) as ocean:
        if target is None:
            target = (await ocean.create_run(session_id="s", clog_id="bench")).run_id
        run_id: str = target

        async def advance_one(name: str | None) -> None:
            poked = await ocean.advance(run_id=name, max_ticks=1, concurrency=1)
            assert poked.advanced == 1, poked

        created = await _median_ms(ask, lambda _: ocean.create_run(session_id="s", clog_id="bench"))
        # As many again, so that there is a signal for every claim and for every tick.
        signalled = [await _median_ms(ask, lambda number: ocean.signal(run_id, {"n": number})) for _ in range(2)]
        return {
            "create_ms": created,
            "signal_ms": min(signalled),
            "claim_ms": await _median_ms(ask, lambda _: advance_one(None)),
            "tick_ms": await _median_ms(ask, lambda _: advance_one(run_id)),
        }


async def _median_ms(ask: Ask, act: Callable[[int], Awaitable[object]]) -> float:
    took = []
    for number in range(WARM_UP + ask["calls"]):
        began = time.perf_counter()
        await act(number)
        took.append(time.perf_counter() - began)
    return percentile(took[WARM_UP:], 50) * 1_000


async def fill(ask: Ask) -> str | None:
    """The run to signal, if it is a certain one."""
    state, count = ask["state"], ask["count"]
    if state == "empty":
        return None
    if state == "old":
        await _grown_old(ask)
        return "model"
    async with Ocean.open(url_of(ask), clogs=[clog]) as ocean:
        about = {"becomes": state, "events": ask["events_each"]}
        await ocean.create_run(session_id="s", clog_id="bench", run_id="model", input=about)
        if state != "pending":
            await ocean.advance(max_ticks=1)
    await _copy(ask, count)
    return None


async def _copy(ask: Ask, count: int) -> None:
    if "://" not in ask["db"]:
        copy_in_sqlite(f"{ask['db']}/ocean.db", "model", count)
        return
    await copy_in_postgres(ask["db"], "model", count)
    await _analyze(ask["db"])


async def _grown_old(ask: Ask) -> None:
    """One run of so many ticks, made where nothing waits for a disk."""
    is_sqlite = "://" not in ask["db"]
    if is_sqlite:
        with TemporaryDirectory(dir=MEMORY) as memory:
            await _age(f"sqlite:///{memory}/ocean.db", ask["count"])
            shutil.copy(f"{memory}/ocean.db", ask["db"])
        return
    await _without_waiting(ask["db"], is_so=True)
    await _age(ask["db"], ask["count"])
    await _without_waiting(ask["db"], is_so=False)


async def _age(url: str, ticks: int) -> None:
    async with Ocean.open(url, clogs=[clog]) as ocean:
        about = {"becomes": "old", "ticks": ticks}
        await ocean.create_run(session_id="s", clog_id="bench", run_id="model", input=about)
        while (await ocean.advance(budget_ms=60_000)).due_now:
            pass


async def _without_waiting(url: str, *, is_so: bool) -> None:
    db = await asyncpg.connect(url)
    name = await db.fetchval("SELECT current_database()")
    how = "SET synchronous_commit = off" if is_so else "RESET synchronous_commit"
    await db.execute(f'ALTER DATABASE "{name}" {how}')
    await db.close()


async def burst(ask: Ask) -> Answer:
    """Created in a moment, and worked on before the planner has heard of it."""
    async with Ocean.open(url_of(ask), clogs=[clog]) as ocean:
        for _ in range(100):
            await ocean.create_run(session_id="s", clog_id="bench", input={"becomes": "finished"})
        await _drained(ocean, 100)
        await _analyze(ask["db"])
        await ocean.create_run(session_id="s", clog_id="bench", run_id="model", input={"becomes": "finished"})
        await copy_in_postgres(ask["db"], "model", ask["count"])
        return {"per_s": ask["drained"] / await _drained(ocean, ask["drained"])}


async def _drained(ocean: Ocean, count: int) -> float:
    done, began = 0, time.perf_counter()
    while done < count:
        done += (await ocean.advance(budget_ms=60_000, max_ticks=count - done)).advanced
    return time.perf_counter() - began


async def _analyze(url: str) -> None:
    db = await asyncpg.connect(url, command_timeout=900)
    await db.execute("VACUUM ANALYZE")
    # Else what was copied is on its way to the disk for a while, and in the way of every flush.
    with suppress(asyncpg.InsufficientPrivilegeError):
        await db.execute("CHECKPOINT")
    await db.close()


if __name__ == "__main__":
    answer({"growth": growth, "burst": burst}, run=run_process)
