"""DBOS Transact on SQLite and on PostgreSQL: asynchronous workflows, called directly or through a queue."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig

from bench.contestants.idle_transactions import count_idle_transactions
from bench.contestants.protocol import (
    WARM_UP,
    Request,
    Result,
    Timers,
    Timestamps,
    Traffic,
    call_concurrently,
    latencies_ms,
    measure_one_by_one,
    respond,
)

POLL_S = 0.01
"""Polling interval where there are no notifications, which is everywhere on SQLite. The default is a second."""


@asynccontextmanager
async def launched(request: Request, *, poll_s: float = POLL_S) -> AsyncIterator[None]:
    url = request["db"] if "://" in request["db"] else f"sqlite:///{request['db']}/dbos.sqlite"
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "notification_listener_polling_interval_sec": poll_s,
    }
    if "://" in request["db"]:
        config["sys_db_pool_size"] = request["connections"]
    DBOS(config=config)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()


@DBOS.workflow()
async def finishing(number: int) -> int:
    return number


async def one_tick_runs(request: Request) -> Result:
    async with launched(request):

        async def create(number: int) -> None:
            await finishing(number)

        async def finished(count: int) -> float:
            began = time.perf_counter()
            await call_concurrently(request["callers"], count, create)
            return time.perf_counter() - began

        await finished(50)
        return {"per_s": request["runs"] / await finished(request["runs"])}


async def one_tick_runs_by_queue(request: Request) -> Result:
    async with launched(request):
        await DBOS.register_queue_async("queue", polling_interval_sec=0.01)

        async def finished(count: int) -> float:
            began = time.perf_counter()
            handles = []

            async def create(number: int) -> None:
                handles.append(await DBOS.enqueue_workflow_async("queue", finishing, number))

            await call_concurrently(request["callers"], count, create)
            for handle in handles:
                await handle.get_result(polling_interval_sec=0.01)
            return time.perf_counter() - began

        await finished(50)
        return {"per_s": request["runs"] / await finished(request["runs"])}


@DBOS.step()
async def step(number: int) -> int:
    return number


@DBOS.workflow()
async def stepping(steps: int) -> None:
    for number in range(steps):
        await step(number)


async def ten_steps(request: Request) -> Result:
    async with launched(request):

        async def create(number: int) -> None:
            await stepping(request["steps"])

        await call_concurrently(request["callers"], 10, create)
        began = time.perf_counter()
        await call_concurrently(request["callers"], request["runs"], create)
        return {"per_s": request["runs"] * request["steps"] / (time.perf_counter() - began)}


timestamps = Timestamps()


@DBOS.workflow()
async def receiving(count: int) -> None:
    """A message is received when that is recorded, so both times are the same."""
    for _ in range(count):
        await DBOS.recv_async(timeout_seconds=600)
        timestamps.mark_handled()
        timestamps.mark_committed()


async def signal_latency(request: Request) -> Result:
    async with launched(request):
        handle = await DBOS.start_workflow_async(receiving, WARM_UP + request["signals"])

        async def send(number: int) -> None:
            await DBOS.send_async(handle.get_workflow_id(), {"n": number})

        return await measure_one_by_one(request["signals"], timestamps, send)


traffic = Traffic(0)


@DBOS.workflow()
async def waiting(count: int) -> None:
    for _ in range(count):
        traffic.received((await DBOS.recv_async(timeout_seconds=600))["n"])


async def signals(request: Request) -> Result:
    global traffic
    traffic = Traffic(request["signals"])
    each = -(-request["signals"] // request["runs"])
    async with launched(request):
        ids = [(await DBOS.start_workflow_async(waiting, each)).get_workflow_id() for _ in range(request["runs"])]
        await asyncio.sleep(request["settle_s"])
        return await traffic.measure(request["callers"], lambda n: DBOS.send_async(ids[n % len(ids)], {"n": n}))


clocks: Timers


@DBOS.workflow()
async def sleeping(at: float) -> None:
    await DBOS.sleep_async(at - time.time())
    clocks.fired(at)


async def timers(request: Request) -> Result:
    global clocks
    async with launched(request):
        clocks = Timers(request)
        return await clocks.measure(request["callers"], lambda n: DBOS.start_workflow_async(sleeping, clocks.due_at(n)))


written_at: dict[str, list[float]] = {}


@DBOS.workflow()
async def streaming(events: int, apart_ms: int) -> None:
    mine = written_at.setdefault(str(DBOS.workflow_id), [])
    for number in range(events):
        await DBOS.write_stream_async("tokens", {"n": number, "text": "a word or two"})
        mine.append(time.time())
        if apart_ms:
            await asyncio.sleep(apart_ms / 1_000)
    await DBOS.close_stream_async("tokens")


async def _stream(request: Request, events: int, apart_ms: int) -> list[tuple[str, list[float]]]:
    """Return when each of the watchers, which are in the same process, saw each event of its workflow."""

    async def watch(workflow_id: str) -> tuple[str, list[float]]:
        feed = DBOS.read_stream_async(workflow_id, "tokens", polling_interval_sec=POLL_S)
        return workflow_id, [time.time() async for _ in feed]

    handles = [await DBOS.start_workflow_async(streaming, events, apart_ms) for _ in range(request["writers"])]
    return await asyncio.gather(
        *(watch(each.get_workflow_id()) for each in handles for _ in range(request["watchers"]))
    )


async def streams(request: Request) -> Result:
    async with launched(request):
        await _stream(request | {"watchers": 1}, 5, 0)
        fast = await _stream(request, request["events"], 0)
        seconds = max(seen_at[-1] for _, seen_at in fast) - min(written_at[key][0] for key, _ in fast)
        paced = await _stream(request, request["paced"], request["apart_ms"])
        lags = [
            seen - written for key, seen_at in paced for seen, written in zip(seen_at, written_at[key], strict=True)
        ]
        return {"per_s": request["events"] * request["writers"] / seconds} | latencies_ms(lags)


async def idle(request: Request) -> Result:
    """With one queue, which it polls once a second by default."""
    async with launched(request, poll_s=1.0):
        await DBOS.register_queue_async("queue")
        return await count_idle_transactions(request)


if __name__ == "__main__":
    respond(
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
