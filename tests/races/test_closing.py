"""Closing an Ocean while callers wait for it."""

import threading

import anyio
import pytest

from ocean import Clog, Event, Ok, StoreUnusable, Tick
from ocean.stores.sqlite.engine.group_commit import QueuedUnit
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import world

pytestmark = pytest.mark.anyio


async def test_a_follower_ends_when_its_ocean_is_closed() -> None:
    clog, seen, messages, waiting = Clog("quiet"), list[Event](), list[str](), anyio.Event()
    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="quiet")

        async def follow() -> None:
            try:
                async for event in w.ocean.follow(run.run_id):
                    seen.append(event)
                    waiting.set()
            except StoreUnusable as error:
                messages.append(error.message)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await waiting.wait()
                await anyio.wait_all_tasks_blocked()
                await w.ocean.close()
    assert ([event.type for event in seen], messages) == (["run.created"], ["this Ocean is closed"])


async def test_a_unit_that_slips_in_while_the_database_closes_is_refused_not_forgotten() -> None:
    async with world() as w:
        assert isinstance(w.store, SqliteStore)
        database = w.store.database
        await database.close()
        late = QueuedUnit(lambda db: None, threading.Event())
        database._queue.append(late)
        database._submit()
        assert isinstance(late.waiter, threading.Event)
        assert late.waiter.is_set()
        with pytest.raises(StoreUnusable, match="closed"):
            late.outcome()


async def test_a_last_tick_that_is_due_counts_as_due_although_its_clog_is_paused() -> None:
    clog = Clog("ending")

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        return Ok()

    @clog.on_end
    async def end(tick: Tick) -> Ok:
        return Ok()

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="ending", input=1)
        await w.ocean.create_run(session_id="s", clog_id="ending", input=1)
        await w.ocean.pause_clog("ending")
        await w.ocean.cancel_run(run.run_id)
        poke = await w.ocean.advance(max_ticks=0)
        assert (poke.due_now, poke.unclaimable) == (1, 1)
        assert (await w.ocean.advance()).advanced == 1
