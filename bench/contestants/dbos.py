"""DBOS Transact on SQLite and on PostgreSQL: asynchronous workflows, called where they are, or by way of a queue."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig

from bench.contestants.answering import (
    WARM_UP,
    Answer,
    Ask,
    Moments,
    Timers,
    Traffic,
    answer,
    by_callers,
    in_ms,
    one_by_one,
)
from bench.contestants.resting import asked_at_rest

POLL_S = 0.01
"""How often it looks for what nobody tells it of, which on SQLite is everything. It ships with a second."""


@asynccontextmanager
async def launched(ask: Ask, *, poll_s: float = POLL_S) -> AsyncIterator[None]:
    url = ask["db"] if "://" in ask["db"] else f"sqlite:///{ask['db']}/dbos.sqlite"
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "notification_listener_polling_interval_sec": poll_s,
    }
    if "://" in ask["db"]:
        config["sys_db_pool_size"] = ask["connections"]
    DBOS(config=config)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


@DBOS.workflow()
async def finishing(number: int) -> int:
    return number


async def one_tick_runs(ask: Ask) -> Answer:
    async with launched(ask):

        async def create(number: int) -> None:
            await finishing(number)

        async def finished(count: int) -> float:
            began = time.perf_counter()
            await by_callers(ask["callers"], count, create)
            return time.perf_counter() - began

        await finished(50)
        return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def one_tick_runs_by_queue(ask: Ask) -> Answer:
    async with launched(ask):
        await DBOS.register_queue_async("queue", polling_interval_sec=0.01)

        async def finished(count: int) -> float:
            began = time.perf_counter()
            handles = []

            async def create(number: int) -> None:
                handles.append(await DBOS.enqueue_workflow_async("queue", finishing, number))

            await by_callers(ask["callers"], count, create)
            for handle in handles:
                await handle.get_result(polling_interval_sec=0.01)
            return time.perf_counter() - began

        await finished(50)
        return {"per_s": ask["runs"] / await finished(ask["runs"])}


@DBOS.step()
async def step(number: int) -> int:
    return number


@DBOS.workflow()
async def stepping(steps: int) -> None:
    for number in range(steps):
        await step(number)


async def ten_steps(ask: Ask) -> Answer:
    async with launched(ask):

        async def create(number: int) -> None:
            await stepping(ask["steps"])

        await by_callers(ask["callers"], 10, create)
        began = time.perf_counter()
        await by_callers(ask["callers"], ask["runs"], create)
        return {"per_s": ask["runs"] * ask["steps"] / (time.perf_counter() - began)}


moments = Moments()


@DBOS.workflow()
async def receiving(count: int) -> None:
    """A message is received when that is recorded, so both moments are one."""
    for _ in range(count):
        await DBOS.recv_async(timeout_seconds=600)
        moments.handle()
        moments.commit()


async def signal_latency(ask: Ask) -> Answer:
    async with launched(ask):
        handle = await DBOS.start_workflow_async(receiving, WARM_UP + ask["signals"])

        async def send(number: int) -> None:
            await DBOS.send_async(handle.get_workflow_id(), {"n": number})

        return await one_by_one(ask["signals"], moments, send)


traffic = Traffic(0)


@DBOS.workflow()
async def waiting(count: int) -> None:
    for _ in range(count):
        traffic.received((await DBOS.recv_async(timeout_seconds=600))["n"])


async def signals(ask: Ask) -> Answer:
    global traffic
    traffic = Traffic(ask["signals"])
    each = -(-ask["signals"] // ask["runs"])
    async with launched(ask):
        ids = [(await DBOS.start_workflow_async(waiting, each)).get_workflow_id() for _ in range(ask["runs"])]
        await asyncio.sleep(ask["settle_s"])
        return await traffic.sent(ask["callers"], lambda n: DBOS.send_async(ids[n % len(ids)], {"n": n}))


clocks: Timers


@DBOS.workflow()
async def sleeping(at: float) -> None:
    await DBOS.sleep_async(at - time.time())
    clocks.fired(at)


async def timers(ask: Ask) -> Answer:
    global clocks
    async with launched(ask):
        clocks = Timers(ask)
        return await clocks.set_by(ask["callers"], lambda n: DBOS.start_workflow_async(sleeping, clocks.at(n)))


told_at: dict[str, list[float]] = {}


@DBOS.workflow()
async def streaming(events: int, apart_ms: int) -> None:
    mine = told_at.setdefault(str(DBOS.workflow_id), [])
    for number in range(events):
        await DBOS.write_stream_async("tokens", {"n": number, "text": "a word or two"})
        mine.append(time.time())
        if apart_ms:
            await asyncio.sleep(apart_ms / 1_000)
    await DBOS.close_stream_async("tokens")


async def _streamed(ask: Ask, events: int, apart_ms: int) -> list[tuple[str, list[float]]]:
    """When each of the watchers, who are in the same process, saw each event of its workflow."""

    async def watch(workflow_id: str) -> tuple[str, list[float]]:
        feed = DBOS.read_stream_async(workflow_id, "tokens", polling_interval_sec=POLL_S)
        return workflow_id, [time.time() async for _ in feed]

    handles = [await DBOS.start_workflow_async(streaming, events, apart_ms) for _ in range(ask["writers"])]
    return await asyncio.gather(*(watch(each.get_workflow_id()) for each in handles for _ in range(ask["watchers"])))


async def streams(ask: Ask) -> Answer:
    async with launched(ask):
        await _streamed(ask | {"watchers": 1}, 5, 0)
        fast = await _streamed(ask, ask["events"], 0)
        seconds = max(seen_at[-1] for _, seen_at in fast) - min(told_at[key][0] for key, _ in fast)
        paced = await _streamed(ask, ask["paced"], ask["apart_ms"])
        lags = [seen - told for key, seen_at in paced for seen, told in zip(seen_at, told_at[key], strict=True)]
        return {"per_s": ask["events"] * ask["writers"] / seconds} | in_ms(lags)


async def idle(ask: Ask) -> Answer:
    """With one queue, which it ships to look at once a second."""
    async with launched(ask, poll_s=1.0):
        await DBOS.register_queue_async("queue")
        return await asked_at_rest(ask)


if __name__ == "__main__":
    answer(
        {
            "one_tick_runs": one_tick_runs,
            "one_tick_runs_by_queue": one_tick_runs_by_queue,
            "ten_steps": ten_steps,
            "signal_latency": signal_latency,
            "timers": timers,
            "idle": idle,
            "signals": signals,
            "streams": streams,
        }
    )
