"""absurd on PostgreSQL: the schema that its own tool bundles, clients and workers on connections of their own, and
workers that claim as many tasks at once as they execute."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.contestants.idle_transactions import count_idle_transactions
from bench.contestants.protocol import (
    Countdown,
    Request,
    Result,
    Timers,
    Timestamps,
    Traffic,
    background,
    call_concurrently,
    measure_one_by_one,
    respond,
    wait_until,
)

UNFINISHED = "SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'"


class Workers:
    """Several workers, because each uses a single connection."""

    def __init__(self, request: Request) -> None:
        self._ask = request
        self.each = [AsyncAbsurd(request["db"]) for _ in range(request.get("absurd_workers", 1))]

    def register(self, handler: Callable[[Any, Any], Awaitable[Any]]) -> None:
        for worker in self.each:
            worker.register_task("job")(handler)

    async def work(self) -> None:
        poll_s = self._ask.get("poll_ms", 250) / 1_000
        concurrency = max(self._ask.get("concurrency", 1) // len(self.each), 1)
        await asyncio.gather(
            *(
                worker.start_worker(worker_id=f"w{number}", concurrency=concurrency, poll_interval=poll_s)
                for number, worker in enumerate(self.each)
            )
        )


@asynccontextmanager
async def opened(request: Request) -> AsyncIterator[tuple[list[AsyncAbsurd], Workers, Any]]:
    """Yield clients that spawn tasks, the workers, and a connection for queries."""
    queries = await psycopg.AsyncConnection.connect(request["db"], autocommit=True)
    await queries.execute(BUNDLED_SCHEMA_SQL)
    workers = Workers(request)
    await workers.each[0].create_queue()
    clients = [AsyncAbsurd(request["db"]) for _ in range(request["connections"])]
    yield clients, workers, queries
    for each in (*clients, *workers.each):
        await each.close()
    await queries.close()


async def one_tick_runs(request: Request) -> Result:
    async with opened(request) as (clients, workers, queries):
        countdown = Countdown(0)

        async def job(params: Any, ctx: Any) -> Any:
            countdown.count()
            return params

        workers.register(job)

        async def is_finished() -> bool:
            return not (await (await queries.execute(UNFINISHED)).fetchone())[0]

        async def create(number: int) -> None:
            await clients[number % len(clients)].spawn("job", {"n": number}, queue="default")

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await call_concurrently(request["callers"], count, create)
            await countdown.wait()
            await wait_until(is_finished)
            return time.perf_counter() - began

        async with background(workers.work()):
            await finished(50)
            return {"per_s": request["runs"] / await finished(request["runs"])}


async def signal_latency(request: Request) -> Result:
    timestamps = Timestamps()

    async with opened(request) as (clients, workers, queries):

        async def job(params: Any, ctx: Any) -> Any:
            timestamps.mark_handled()
            return params

        workers.register(job)

        async def is_finished() -> bool:
            return not (await (await queries.execute(UNFINISHED)).fetchone())[0]

        async def spawn(number: int) -> None:
            await clients[0].spawn("job", {"n": number}, queue="default")
            await wait_until(is_finished, every_s=0.001)
            timestamps.mark_committed()

        async with background(workers.work()):
            return await measure_one_by_one(request["signals"], timestamps, spawn)


async def ten_steps(request: Request) -> Result:
    countdown = Countdown(0)
    async with opened(request) as (clients, workers, queries):

        async def job(params: Any, ctx: Any) -> None:
            for number in range(request["steps"]):
                await ctx.step(f"step{number}", lambda result=number: _itself(result))
            countdown.count()

        workers.register(job)

        async def is_finished() -> bool:
            return not (await (await queries.execute(UNFINISHED)).fetchone())[0]

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await call_concurrently(
                request["callers"], count, lambda n: clients[n % len(clients)].spawn("job", {"n": n}, queue="default")
            )
            await countdown.wait()
            await wait_until(is_finished)
            return time.perf_counter() - began

        async with background(workers.work()):
            await finished(10)
            return {"per_s": request["runs"] * request["steps"] / await finished(request["runs"])}


async def _itself(value: int) -> int:
    return value


async def signals(request: Request) -> Result:
    """Every event needs a name of its own: only the first event of a name is kept."""
    traffic = Traffic(request["signals"])
    each = -(-request["signals"] // request["runs"])
    seen: set[int] = set()
    async with opened(request) as (clients, workers, queries):

        async def job(params: Any, ctx: Any) -> None:
            for turn in range(each):
                number = params["n"] + turn * request["runs"]
                await ctx.await_event(f"event{number}")
                if number not in seen:
                    # A resumed task runs from its beginning, through the events it has already received.
                    seen.add(number)
                    traffic.received(number)

        workers.register(job)

        async def is_waiting() -> bool:
            cursor = await queries.execute("SELECT count(*) FROM absurd.t_default WHERE state = 'sleeping'")
            return bool((await cursor.fetchone())[0] == request["runs"])

        async with background(workers.work()):
            await call_concurrently(
                request["callers"],
                request["runs"],
                lambda n: clients[n % len(clients)].spawn("job", {"n": n}, queue="default"),
            )
            await wait_until(is_waiting)
            return await traffic.measure(
                request["callers"], lambda n: clients[n % len(clients)].emit_event(f"event{n}", {"n": n})
            )


async def timers(request: Request) -> Result:
    clocks = Timers(request)
    async with opened(request) as (clients, workers, _):

        async def job(params: Any, ctx: Any) -> None:
            await ctx.sleep_until("nap", params["at"])
            clocks.fired(params["at"])

        workers.register(job)

        async def spawn(number: int) -> None:
            await clients[number % len(clients)].spawn("job", {"at": clocks.due_at(number)}, queue="default")

        async with background(workers.work()):
            return await clocks.measure(request["callers"], spawn)


async def idle(request: Request) -> Result:
    async with opened(request) as (_, workers, _queries), background(workers.work()):
        return await count_idle_transactions(request)


if __name__ == "__main__":
    respond(
        {
            "one_tick_runs": one_tick_runs,
            "ten_steps": ten_steps,
            "signal_latency": signal_latency,
            "timers": timers,
            "idle": idle,
            "signals": signals,
        }
    )
