"""Ocean while many runs sleep and nothing is due: every statement is counted, the look at a file's version too."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack

from bench.contestants.answering import Answer, Ask, answer
from bench.contestants.ocean import url_of
from bench.contestants.ocean_grown import clog, fill
from bench.contestants.resting import asked_at_rest
from ocean import Ocean, SystemClock
from ocean.compose import open_store
from ocean.process import run_process
from ocean.stores.sqlite.store import SqliteStore
from ocean.ticker import ticker


async def idle(ask: Ask) -> Answer:
    await fill(ask | {"state": "sleeping", "events_each": 0})
    store = await open_store(url_of(ask), SystemClock())
    async with AsyncExitStack() as stack:
        ocean = Ocean(store, [clog], store.clock)
        await ocean.start()
        stack.push_async_callback(ocean.close)
        if ask["has_ticker"]:
            await stack.enter_async_context(ticker(ocean))
        return await _traced(store, ask) if isinstance(store, SqliteStore) else await asked_at_rest(ask)


async def _traced(store: SqliteStore, ask: Ask) -> Answer:
    statements: list[str] = []

    def attach(db: sqlite3.Connection) -> None:
        db.set_trace_callback(statements.append)

    await asyncio.sleep(ask["settle_s"])
    await store.database.on_writer(attach)
    await store.database.read(attach)
    statements.clear()
    await asyncio.sleep(ask["seconds"])
    return {"per_minute": len(statements) * 60 / ask["seconds"]}


if __name__ == "__main__":
    answer({"idle": idle}, run=run_process)
