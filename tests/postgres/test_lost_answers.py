"""A connection that breaks before or after the commit: whatever became of it is found out, and happens once."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ocean import Clog, Done, Ocean, Tick
from tests.postgres.proxy import Cut, Proxy, proxied

pytestmark = pytest.mark.anyio

WORD = "zanzibar"
Deed = Callable[[Ocean, str], Coroutine[Any, Any, Any]]


async def signal(ocean: Ocean, run_id: str) -> Any:
    return await ocean.signal(run_id, {"word": WORD})


async def create(ocean: Ocean, run_id: str) -> Any:
    return await ocean.create_run(session_id="s", clog_id="c", input={"word": WORD})


async def call(ocean: Ocean, run_id: str) -> Any:
    return await ocean.call_clog(run_id=run_id, method="say", payload=WORD)


ONCE = {"signal": ["run.signalled"], "create": ["run.created"], "call": ["said", "call.committed"]}


@asynccontextmanager
async def cut_off(url: str) -> AsyncIterator[tuple[Ocean, Proxy]]:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        await tick.emit("said", {"word": WORD})
        return Done({"word": WORD})

    @clog.method
    async def say(tick: Tick, payload: str) -> str:
        await tick.emit("said", {"word": payload})
        return payload

    async with proxied(url) as (there, proxy), Ocean.open(there, clogs=[clog]) as ocean:
        yield ocean, proxy


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("deed", [signal, create, call], ids=lambda deed: deed.__name__)
async def test_what_is_cut_off_at_its_commit_happens_once(real_database: str, deed: Deed, cut: Cut) -> None:
    async with cut_off(real_database) as (ocean, proxy):
        run = await ocean.create_run(session_id="s", clog_id="c")
        before = await ocean.read_events(limit=1_000)
        # The marker is the token's statement: what is read beforehand does not have the word in it.
        proxy.arm(cut, WORD.encode())
        await deed(ocean, run.run_id)
        assert proxy.has_cut.is_set()
        news = [event.type for event in (await ocean.read_events(limit=1_000))[len(before) :]]
        assert news == ONCE[deed.__name__]


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_tick_that_is_cut_off_at_its_commit_is_committed_once(real_database: str, cut: Cut) -> None:
    async with cut_off(real_database) as (ocean, proxy):
        run = await ocean.create_run(session_id="s", clog_id="c", input={})
        proxy.arm(cut, WORD.encode())
        result = await ocean.advance(run_id=run.run_id)
        assert [outcome.outcome for outcome in result.outcomes] == ["done"]
        assert proxy.has_cut.is_set()
        types = [event.type for event in await ocean.read_events(run.run_id)]
        assert types == ["run.created", "said", "tick.committed", "run.done"]


async def test_a_server_that_comes_back_is_found_again(real_database: str) -> None:
    async with cut_off(real_database) as (ocean, proxy):
        run = await ocean.create_run(session_id="s", clog_id="c")
        proxy.is_down = True
        proxy.cut_all()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal, ocean, run.run_id)
            await anyio.lowlevel.checkpoint()
            proxy.is_down = False
        assert (await ocean.get_run(run.run_id)).pending_count == 1  # type: ignore[union-attr]
