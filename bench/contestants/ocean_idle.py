"""Ocean while many runs sleep and nothing is due: every statement is counted, also the check of the file's version."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack

from bench.contestants.idle_transactions import count_idle_transactions
from bench.contestants.ocean import url_of
from bench.contestants.ocean_filled import clog, fill
from bench.contestants.protocol import Request, Result, respond
from ocean import Ocean, SystemClock
from ocean.compose import open_store
from ocean.process import run_process
from ocean.stores.sqlite.store import SqliteStore
from ocean.ticker import ticker


async def idle(request: Request) -> Result:
    await fill(request | {"state": "sleeping", "events_each": 0})
    store = await open_store(url_of(request), SystemClock())
    async with AsyncExitStack() as stack:
        ocean = Ocean(store, [clog], store.clock)
        await ocean.start()
        stack.push_async_callback(ocean.close)
        if request["has_ticker"]:
            await stack.enter_async_context(ticker(ocean))
        return (
            await _traced(store, request) if isinstance(store, SqliteStore) else await count_idle_transactions(request)
        )


async def _traced(store: SqliteStore, request: Request) -> Result:
    statements: list[str] = []

    def attach(db: sqlite3.Connection) -> None:
        db.set_trace_callback(statements.append)

    await asyncio.sleep(request["settle_s"])
    await store.database.on_writer(attach)
    await store.database.read(attach)
    statements.clear()
    await asyncio.sleep(request["seconds"])
    return {"per_minute": len(statements) * 60 / request["seconds"]}


if __name__ == "__main__":
    respond({"idle": idle}, run=run_process)
