"""Connections that break during a write: its result is looked up first, so that it happens once."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import asyncpg
import pytest

from ocean import StoreBusy
from tests.postgres.notes import Desk, desk, notes_database, words_in
from tests.postgres.proxy import Cut, proxied

pytestmark = pytest.mark.anyio

SOON = "statement_ms=1000"
"""A server that does not respond is given up soon."""
Deed = Callable[[Desk], Coroutine[Any, Any, Any]]


@pytest.fixture
def url() -> str:
    return notes_database()


async def write(desk: Desk) -> Any:
    return await desk.note("zanzibar")


async def claim(desk: Desk) -> Any:
    return await desk.batches.claim({"words": ["zanzibar"]})


WROTE = {"write": {"word": "zanzibar", "request": None}, "claim": {"claims": ["zanzibar"], "again": False}}
both = pytest.mark.parametrize("deed", [write, claim], ids=lambda deed: deed.__name__)


async def tokens(url: str) -> list[bool]:
    """For each stored token, whether it has a result or is void."""
    db = await asyncpg.connect(url)
    try:
        return [row[0] for row in await db.fetch("SELECT answer IS NOT NULL FROM ocean_groups ORDER BY 1")]
    finally:
        await db.close()


@both
@pytest.mark.parametrize("cut", ["before", "after", "swallow"])
async def test_a_write_that_is_cut_off_happens_once(url: str, deed: Deed, cut: Cut) -> None:
    async with proxied(f"{url}?{SOON}") as (there, proxy), desk(there) as d:
        proxy.arm(cut, b"zanzibar")
        assert await deed(d) == WROTE[deed.__name__]
        assert proxy.has_cut.is_set()
        assert await words_in(url) == ["zanzibar"]
        # After the commit there is one token, which was looked up; before it, that token is void and there is another.
        assert await tokens(url) == ([True] if cut == "after" else [False, True])
        assert d.pool.round_trips == (2 if cut == "after" else 3)


@both
async def test_a_statement_that_arrives_after_its_token_is_void_changes_nothing(url: str, deed: Deed) -> None:
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("late", b"zanzibar")
        assert await deed(d) == WROTE[deed.__name__]
        proxy.lets_go.set()
        with anyio.fail_after(20):
            assert b"ERROR" in await proxy.unheard.get()
        assert await words_in(url) == ["zanzibar"]


@both
async def test_a_statement_that_arrives_during_the_lookup_happens_once(url: str, deed: Deed) -> None:
    """Cut off, but still waiting for a lock on the server: looking up its token waits for its end."""
    db = await asyncpg.connect(url)
    async with (
        proxied(url) as (there, proxy),
        desk(there) as d,
        anyio.create_task_group() as tasks,
        db.transaction(),
    ):
        await db.execute("LOCK TABLE notes IN EXCLUSIVE MODE")
        tasks.start_soon(deed, d)
        await blocked(url, 1)
        proxy.cut_all()
        # Looking up a group waits for its lock; a claim has no lock, so it becomes void.
        await blocked(url, 2)
    await db.close()
    assert await words_in(url) == ["zanzibar"]


async def blocked(url: str, count: int) -> None:
    """Wait until `count` server processes wait for a lock."""
    db = await asyncpg.connect(url)
    waiting = 0
    with anyio.fail_after(20):
        while waiting < count:
            waiting = await db.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
    await db.close()


async def test_a_lookup_that_is_lost_too_is_repeated(url: str) -> None:
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("after", b"zanzibar")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, d)
            await proxy.has_cut.wait()
            proxy.arm("after", b"ocean_settle")
        assert proxy.has_cut.is_set()
        assert await words_in(url) == ["zanzibar"]


async def test_the_result_of_a_lost_group_is_found_whole(url: str) -> None:
    async with proxied(url) as (there, proxy), desk(there) as d:
        proxy.arm("after", b"w3")
        results: list[str] = []

        async def note(word: str) -> None:
            results.append((await d.note(word))["word"])

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(note, f"w{number}")
        assert results == await words_in(url) == [f"w{number}" for number in range(6)]
        assert proxy.has_cut.is_set()


@both
async def test_an_unreachable_server_raises_store_busy_and_nothing_was_done(url: str, deed: Deed) -> None:
    async with proxied(url) as (there, proxy), desk(there, retry_pauses_ms=(0, 10)) as d:
        proxy.is_down = True
        proxy.cut_all()
        for ask in (d.words, lambda: deed(d)):
            # The first finds that the connection is lost; the second finds no server to connect to.
            with pytest.raises(StoreBusy) as refused:
                await ask()
        assert "cannot be reached" in str(refused.value)
        proxy.is_down = False
        assert await words_in(url) == []
        assert await deed(d) == WROTE[deed.__name__]


@both
async def test_a_write_lost_with_a_server_that_stays_away_is_reported_as_unknown(url: str, deed: Deed) -> None:
    async with proxied(url) as (there, proxy), desk(there, retry_pauses_ms=(0, 10)) as d:
        proxy.arm("after", b"zanzibar")
        proxy.is_down_once_cut = True
        with pytest.raises(StoreBusy, match="may stand"):
            await deed(d)
        assert await words_in(url) == ["zanzibar"]


@both
async def test_a_connection_that_died_silently_is_replaced(url: str, deed: Deed) -> None:
    async with proxied(f"{url}?{SOON}") as (there, proxy), desk(there, retry_pauses_ms=(0, 10)) as d:
        assert await d.words() == []
        proxy.freeze(b"")
        assert await deed(d) == WROTE[deed.__name__]
        assert await words_in(url) == ["zanzibar"]


@both
async def test_a_server_that_became_read_only_is_left_for_another(url: str, deed: Deed) -> None:
    """As after a failover: the connection works, but leads to the wrong server."""
    async with desk(f"{url}?pool=1", retry_pauses_ms=(0, 10)) as d:
        await d.pool.read(lambda db: db.execute("SET default_transaction_read_only = on"))
        assert await deed(d) == WROTE[deed.__name__]
        assert await words_in(url) == ["zanzibar"]


@both
async def test_a_server_that_never_responds_is_given_up_in_time(url: str, deed: Deed) -> None:
    async with proxied(f"{url}?{SOON}") as (there, proxy), desk(there, retry_pauses_ms=(0,) * 100) as d:
        proxy.is_black_hole = True
        with anyio.fail_after(20), pytest.raises(StoreBusy, match="may stand"):
            await deed(d)
        proxy.is_black_hole = False
        proxy.cut_all()
        assert await words_in(url) == []
