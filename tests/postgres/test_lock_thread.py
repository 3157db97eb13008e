"""Writing from a thread while the event loop is blocked: locks are renewed this way."""

from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.to_thread
import asyncpg
import pytest

from ocean import StoreUnusable, SystemClock
from ocean.state.errors import StoreFailed
from ocean.stores.postgres.client.lock_thread import LockThread
from ocean.stores.postgres.client.options import options_from
from tests.postgres.notes import notes_database, words_in
from tests.postgres.proxy import proxied

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> str:
    return notes_database()


async def test_it_writes_while_the_loop_is_blocked_and_sends_no_notification(url: str) -> None:
    notifications: list[object] = []
    db = await asyncpg.connect(url)
    await db.add_listener("ocean", lambda *facts: notifications.append(facts))
    lock_thread = LockThread(options_from(url), SystemClock())
    # No await: the event loop of this test is blocked until the lock thread returns.
    assert lock_thread.write("note", {"word": "a"})["word"] == "a"
    with pytest.raises(StoreFailed):
        lock_thread.write("fail", {"word": "b"})
    lock_thread.close()
    await db.execute("SELECT 1")
    assert notifications == []
    await db.close()
    assert await words_in(url) == ["a"]


def test_many_threads_may_write_at_once(url: str) -> None:
    lock_thread = LockThread(options_from(url), SystemClock())
    words = [f"w{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda word: lock_thread.write("note", {"word": word})["word"], words))
    assert results == words
    assert sorted(lock_thread.write("look", {})) == sorted(words)
    lock_thread.close()


def test_it_starts_when_needed_and_stays_closed(url: str) -> None:
    unused = LockThread(options_from("postgresql://user@127.0.0.1:1/nothing"), SystemClock())
    unused.close()
    lock_thread = LockThread(options_from(url), SystemClock())
    lock_thread.write("note", {"word": "a"})
    lock_thread.close()
    lock_thread.close()
    for closed in (unused, lock_thread):
        with pytest.raises(StoreUnusable, match="closed"):
            closed.write("note", {"word": "b"})


async def test_a_server_that_was_away_at_first_is_reached_later(url: str) -> None:
    async with proxied(url) as (there, proxy):
        lock_thread = LockThread(options_from(there), SystemClock())
        proxy.is_down = True
        with pytest.raises(StoreUnusable, match="cannot open"):
            await anyio.to_thread.run_sync(lock_thread.write, "note", {"word": "a"})
        proxy.is_down = False
        await anyio.to_thread.run_sync(lock_thread.write, "note", {"word": "a"})
        await anyio.to_thread.run_sync(lock_thread.close)
    assert await words_in(url) == ["a"]


async def test_writes_in_flight_are_finished_before_it_closes(url: str) -> None:
    async with proxied(url) as (there, proxy):
        lock_thread = LockThread(options_from(there), SystemClock())
        proxy.arm("held", b"zanzibar")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, lock_thread.write, "note", {"word": "zanzibar"})
            await proxy.has_cut.wait()
            tasks.start_soon(anyio.to_thread.run_sync, lock_thread.close)
            proxy.lets_go.set()
    assert await words_in(url) == ["zanzibar"]
