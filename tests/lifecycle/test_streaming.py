"""A handler that streams does not wait for the database, and no event is lost or out of order."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean import Done, Ok, Outcome, Retry, Tick
from ocean.kernel.streaming import MOST_BUFFERED, MOST_BUFFERED_CHARACTERS
from ocean.stores.sqlite.engine.database import Database
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World
from tests.lifecycle.acting import Script, log, look, stage, start

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def held_writer(w: World) -> AsyncIterator[Callable[[], None]]:
    """Block the database's writer until the yielded function is called or the block ends."""
    assert isinstance(w.store, SqliteStore)
    database: Database = w.store.database
    is_held, may_write = threading.Event(), threading.Event()

    def hold(db: Any) -> None:
        is_held.set()
        may_write.wait(30)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(database.on_writer, hold)
        await anyio.to_thread.run_sync(is_held.wait)
        try:
            yield may_write.set
        finally:
            may_write.set()


async def payloads(w: World, run_id: str, type: str = "token") -> list[Any]:
    return [event.payload for event in await log(w, run_id, type)]


async def test_a_streamed_event_is_visible_before_the_tick_ends() -> None:
    seen: list[Any] = []

    async def stream_words(tick: Tick) -> Outcome:
        await tick.emit("whole", "hello world")
        for token in ("hello", "world"):
            await tick.stream("token", token)
            async for event in w.ocean.follow(tick.run_id, types=["token"]):
                if event.payload == token:
                    break
            seen.append(await payloads(w, tick.run_id))
        assert await log(w, tick.run_id, "whole") == []
        return Ok()

    async with stage(Script(stream_words)) as w:
        run_id = await start(w)
        await w.drain()
        assert seen == [["hello"], ["hello", "world"]]
        assert await payloads(w, run_id, "whole") == ["hello world"]


async def test_all_streamed_events_are_stored_in_order_before_the_commit() -> None:
    words = list(range(3 * MOST_BUFFERED + 7))

    async def stream_words(tick: Tick) -> Outcome:
        for word in words:
            await tick.stream("token", word)
        await tick.emit("token", "the end")
        return Done()

    async with stage(Script(stream_words)) as w:
        run_id = await start(w)
        await w.drain()
        assert await payloads(w, run_id) == [*words, "the end"]
        assert [event.type for event in await log(w, run_id)][-3:] == ["token", "tick.committed", "run.done"]


@pytest.mark.parametrize("way", ["it raises", "it asks to be retried", "its time is over"])
async def test_streamed_events_stay_however_the_call_ends(way: str) -> None:
    async def stream_words(tick: Tick) -> Outcome:
        for word in range(20):
            await tick.stream("token", word)
        if way == "it raises":
            raise OSError("line down")
        if way == "its time is over":
            w.clock.advance(1_000_000)
            await anyio.sleep_forever()
        return Retry("later")

    async with stage(Script(stream_words)) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).attempt == 1
        assert await payloads(w, run_id) == list(range(20))


@pytest.mark.sqlite
async def test_events_streamed_during_a_write_share_the_next_one() -> None:
    writes: list[int] = []

    async def stream_words(tick: Tick) -> Outcome:
        before = w.store.batch_sizes.count
        async with held_writer(w) as release:
            for word in range(100):
                await tick.stream("token", word)
            release()
        await tick.step("after", lambda key: None)
        writes.append(w.store.batch_sizes.count - before)
        return Done()

    async with stage(Script(stream_words)) as w:
        run_id = await start(w)
        await w.drain()
        assert await payloads(w, run_id) == list(range(100))
        assert writes == [3], "the first word, the ninety-nine others, the step"


@pytest.mark.sqlite
@pytest.mark.parametrize(("text", "most"), [("", MOST_BUFFERED), ("x" * (MOST_BUFFERED_CHARACTERS // 4), 4)])
async def test_a_handler_streams_a_bounded_number_of_events_ahead_of_the_database(text: str, most: int) -> None:
    streamed: list[int] = []
    stopped_at: list[int] = []

    async def stream_words(tick: Tick) -> Outcome:
        async def words() -> None:
            for word in range(2 * most):
                await tick.stream("token", text)
                streamed.append(word)

        async with anyio.create_task_group() as tasks, held_writer(w):
            tasks.start_soon(words)
            for _ in range(20 * most):
                await anyio.lowlevel.checkpoint()
            stopped_at.append(len(streamed))
        return Done()

    async with stage(Script(stream_words)) as w:
        run_id = await start(w)
        await w.drain()
        assert stopped_at == [most], "the first is being written, and the others wait"
        assert len(await payloads(w, run_id)) == 2 * most


@pytest.mark.sqlite
async def test_streamed_events_are_stored_before_a_later_step() -> None:
    stored: list[Any] = []

    async def stream_words(tick: Tick) -> Outcome:
        await tick.stream("token", "one")
        await tick.step("work", lambda key: None)
        stored.append(await payloads(w, tick.run_id))
        return Done()

    async with stage(Script(stream_words)) as w:
        await start(w)
        await w.drain()
        assert stored == [["one"]]
