"""A connection that breaks before or after the commit: the result is looked up, and the write happens once."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ocean import Clog, Done, Ocean, Tick
from tests.postgres.proxy import Cut, Proxy, proxied

pytestmark = pytest.mark.anyio

WORD = "zanzibar"
CLAIM = b'"instance_id"'
"""Bytes that only a claim contains."""
SOON = "statement_ms=1000"
"""A server that does not respond is given up soon."""
TICK = ["run.created", "said", "tick.committed", "run.done"]
Deed = Callable[[Ocean, str], Coroutine[Any, Any, Any]]
cuts = pytest.mark.parametrize("cut", ["before", "after", "swallow", "late"])


async def signal(ocean: Ocean, run_id: str) -> Any:
    return await ocean.signal(run_id, {"word": WORD})


async def create(ocean: Ocean, run_id: str) -> Any:
    return await ocean.create_run(session_id="s", clog_id="c", input={"word": WORD})


async def call(ocean: Ocean, run_id: str) -> Any:
    return await ocean.call_clog(run_id=run_id, method="say", payload=WORD)


async def cancel(ocean: Ocean, run_id: str) -> Any:
    return await ocean.cancel_run(run_id, reason=WORD)


ONCE = {
    "signal": ["run.signalled"],
    "create": ["run.created"],
    "call": ["said", "call.committed"],
    "cancel": ["run.failed"],
}


@asynccontextmanager
async def cut_off(url: str) -> AsyncIterator[tuple[Ocean, Proxy, list[int]]]:
    clog = Clog("c")
    calls: list[int] = []

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls.append(tick.number)
        await tick.emit("said", {"word": WORD})
        return Done({"word": WORD})

    @clog.method
    async def say(tick: Tick, payload: str) -> str:
        await tick.emit("said", {"word": payload})
        return payload

    async with proxied(f"{url}?{SOON}") as (there, proxy), Ocean.open(there, clogs=[clog]) as ocean:
        yield ocean, proxy, calls


async def arrives_late(proxy: Proxy, cut: Cut) -> None:
    """A request that was cut off and delayed still reaches the server, which refuses it."""
    assert proxy.has_cut.is_set()
    if cut == "late":
        proxy.lets_go.set()
        with anyio.fail_after(20):
            assert b"ERROR" in await proxy.unheard.get()


@cuts
@pytest.mark.parametrize("deed", [signal, create, call, cancel], ids=lambda deed: deed.__name__)
async def test_a_verb_cut_off_at_its_commit_happens_once(real_database: str, deed: Deed, cut: Cut) -> None:
    async with cut_off(real_database) as (ocean, proxy, _):
        run = await ocean.create_run(session_id="s", clog_id="c")
        before = await ocean.read_events(limit=1_000)
        proxy.arm(cut, WORD.encode())
        await deed(ocean, run.run_id)
        await arrives_late(proxy, cut)
        news = [event.type for event in (await ocean.read_events(limit=1_000))[len(before) :]]
        assert news == ONCE[deed.__name__]


@cuts
@pytest.mark.parametrize("marker", [WORD.encode(), CLAIM], ids=["commit", "claim"])
async def test_a_tick_that_is_cut_off_at_its_claim_or_commit_is_called_and_committed_once(
    real_database: str, marker: bytes, cut: Cut
) -> None:
    async with cut_off(real_database) as (ocean, proxy, calls):
        run = await ocean.create_run(session_id="s", clog_id="c", input={})
        proxy.arm(cut, marker)
        result = await ocean.advance()
        assert [outcome.outcome for outcome in result.outcomes] == ["done"]
        # A run that a late claim would find.
        due = await ocean.create_run(session_id="s", clog_id="c", input={})
        await arrives_late(proxy, cut)
        assert calls == [1]
        assert [event.type for event in await ocean.read_events(run.run_id)] == TICK
        found = await ocean.get_run(due.run_id)
        assert found is not None
        assert (found.status, found.tick) == ("pending", 0)


async def test_a_server_that_comes_back_is_used_again(real_database: str) -> None:
    async with cut_off(real_database) as (ocean, proxy, _):
        run = await ocean.create_run(session_id="s", clog_id="c")
        proxy.is_down = True
        proxy.cut_all()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal, ocean, run.run_id)
            await anyio.lowlevel.checkpoint()
            proxy.is_down = False
        assert (await ocean.get_run(run.run_id)).pending_count == 1  # type: ignore[union-attr]
