"""absurd on PostgreSQL: its schema as its own tool bundles it, clients on connections of their own, and workers, on
theirs, that claim as many tasks at once as they work on."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.contestants.answering import (
    Answer,
    Ask,
    Countdown,
    Moments,
    Timers,
    Traffic,
    answer,
    background,
    by_callers,
    one_by_one,
    until,
)
from bench.contestants.resting import asked_at_rest

UNFINISHED = "SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'"


class Workers:
    """Several, since all that one does goes over one connection."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.each = [AsyncAbsurd(ask["db"]) for _ in range(ask.get("absurd_workers", 1))]

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
async def opened(ask: Ask) -> AsyncIterator[tuple[list[AsyncAbsurd], Workers, Any]]:
    """Clients that spawn, workers, and a connection to look with."""
    looking = await psycopg.AsyncConnection.connect(ask["db"], autocommit=True)
    await looking.execute(BUNDLED_SCHEMA_SQL)
    workers = Workers(ask)
    await workers.each[0].create_queue()
    clients = [AsyncAbsurd(ask["db"]) for _ in range(ask["connections"])]
    yield clients, workers, looking
    for each in (*clients, *workers.each):
        await each.close()
    await looking.close()


async def one_tick_runs(ask: Ask) -> Answer:
    async with opened(ask) as (clients, workers, looking):
        countdown = Countdown(0)

        async def job(params: Any, ctx: Any) -> Any:
            countdown.tell()
            return params

        workers.register(job)

        async def is_finished() -> bool:
            return not (await (await looking.execute(UNFINISHED)).fetchone())[0]

        async def create(number: int) -> None:
            await clients[number % len(clients)].spawn("job", {"n": number}, queue="default")

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await by_callers(ask["callers"], count, create)
            await countdown.over()
            await until(is_finished)
            return time.perf_counter() - began

        async with background(workers.work()):
            await finished(50)
            return {"per_s": ask["runs"] / await finished(ask["runs"])}


async def signal_latency(ask: Ask) -> Answer:
    moments = Moments()

    async with opened(ask) as (clients, workers, looking):

        async def job(params: Any, ctx: Any) -> Any:
            moments.handle()
            return params

        workers.register(job)

        async def is_finished() -> bool:
            return not (await (await looking.execute(UNFINISHED)).fetchone())[0]

        async def spawn(number: int) -> None:
            await clients[0].spawn("job", {"n": number}, queue="default")
            await until(is_finished, every_s=0.001)
            moments.commit()

        async with background(workers.work()):
            return await one_by_one(ask["signals"], moments, spawn)


async def ten_steps(ask: Ask) -> Answer:
    countdown = Countdown(0)
    async with opened(ask) as (clients, workers, looking):

        async def job(params: Any, ctx: Any) -> None:
            for number in range(ask["steps"]):
                await ctx.step(f"step{number}", lambda result=number: _itself(result))
            countdown.tell()

        workers.register(job)

        async def is_finished() -> bool:
            return not (await (await looking.execute(UNFINISHED)).fetchone())[0]

        async def finished(count: int) -> float:
            nonlocal countdown
            countdown = Countdown(count)
            began = time.perf_counter()
            await by_callers(
                ask["callers"], count, lambda n: clients[n % len(clients)].spawn("job", {"n": n}, queue="default")
            )
            await countdown.over()
            await until(is_finished)
            return time.perf_counter() - began

        async with background(workers.work()):
            await finished(10)
            return {"per_s": ask["runs"] * ask["steps"] / await finished(ask["runs"])}


async def _itself(value: int) -> int:
    return value


async def signals(ask: Ask) -> Answer:
    """An event has a name of its own: the first of a name is kept, and the others are nothing."""
    traffic = Traffic(ask["signals"])
    each = -(-ask["signals"] // ask["runs"])
    seen: set[int] = set()
    async with opened(ask) as (clients, workers, looking):

        async def job(params: Any, ctx: Any) -> None:
            for turn in range(each):
                number = params["n"] + turn * ask["runs"]
                await ctx.await_event(f"event{number}")
                if number not in seen:
                    # A task that goes on runs from its beginning, over the events it has had.
                    seen.add(number)
                    traffic.received(number)

        workers.register(job)

        async def is_waiting() -> bool:
            cursor = await looking.execute("SELECT count(*) FROM absurd.t_default WHERE state = 'sleeping'")
            return bool((await cursor.fetchone())[0] == ask["runs"])

        async with background(workers.work()):
            await by_callers(
                ask["callers"],
                ask["runs"],
                lambda n: clients[n % len(clients)].spawn("job", {"n": n}, queue="default"),
            )
            await until(is_waiting)
            return await traffic.sent(
                ask["callers"], lambda n: clients[n % len(clients)].emit_event(f"event{n}", {"n": n})
            )


async def timers(ask: Ask) -> Answer:
    clocks = Timers(ask)
    async with opened(ask) as (clients, workers, _):

        async def job(params: Any, ctx: Any) -> None:
            await ctx.sleep_until("nap", params["at"])
            clocks.fired(params["at"])

        workers.register(job)

        async def spawn(number: int) -> None:
            await clients[number % len(clients)].spawn("job", {"at": clocks.at(number)}, queue="default")

        async with background(workers.work()):
            return await clocks.set_by(ask["callers"], spawn)


async def idle(ask: Ask) -> Answer:
    async with opened(ask) as (_, workers, _looking), background(workers.work()):
        return await asked_at_rest(ask)


if __name__ == "__main__":
    answer(
        {
            "one_tick_runs": one_tick_runs,
            "ten_steps": ten_steps,
            "signal_latency": signal_latency,
            "timers": timers,
            "idle": idle,
            "signals": signals,
        }
    )
