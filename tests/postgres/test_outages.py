"""Servers that stop answering, and servers that are restarted while everybody is at work."""

import threading
from collections import Counter

import anyio
import pytest

from ocean import Clog, Ocean, Ok, Outcome, StoreBusy, Tick
from tests.postgres.proxy import proxied
from tests.postgres.server import Server

pytestmark = pytest.mark.anyio

SENDERS, EACH = 6, 8


async def test_an_answer_that_never_comes_is_found_out(real_database: str) -> None:
    async with (
        proxied(f"{real_database}?statement_ms=300") as (url, proxy),
        Ocean.open(url, clogs=[Clog("c")]) as ocean,
    ):
        run = await ocean.create_run(session_id="s", clog_id="c")
        proxy.arm("swallow", b"zanzibar")
        await ocean.signal(run.run_id, "zanzibar")
        assert proxy.has_cut.is_set()
        assert [entry.body for entry in await ocean.list_inputs(run.run_id)] == ["zanzibar"]


async def test_a_restart_under_load_loses_and_doubles_nothing() -> None:
    """Whatever was acknowledged is there once; whatever was not, is there once or not at all."""
    server = Server()
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.emit("heard", tick.input)
        return Ok()

    acknowledged: list[str] = []
    unsure: list[str] = []
    sent = anyio.Event()

    async def send(ocean: Ocean, run_id: str, sender: int) -> None:
        for number in range(EACH):
            word = f"{sender}-{number}"
            try:
                await ocean.signal(run_id, word)
                acknowledged.append(word)
            except StoreBusy:
                unsure.append(word)
            if len(acknowledged) + len(unsure) > SENDERS:
                sent.set()

    async def poke(ocean: Ocean) -> None:
        while not done.is_set():
            try:
                await ocean.advance(budget_ms=200)
            except StoreBusy:
                continue

    def restart() -> None:
        server.stop()
        server.start()
        restarted.set()

    done, restarted = anyio.Event(), threading.Event()
    async with Ocean.open(f"{server.url}/postgres", clogs=[clog]) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="c")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke, ocean)
            async with anyio.create_task_group() as senders:
                for sender in range(SENDERS):
                    senders.start_soon(send, ocean, run.run_id, sender)
                await sent.wait()
                await anyio.to_thread.run_sync(restart)
            done.set()
        assert restarted.is_set()
        while (await ocean.advance(budget_ms=5_000)).advanced:
            pass
        events = await ocean.read_events(run.run_id, limit=1_000)
        heard = Counter(event.payload for event in events if event.type == "heard")
        assert set(heard.values()) == {1}
        assert set(acknowledged) <= heard.keys() <= {*acknowledged, *unsure}
        assert len(acknowledged) + len(unsure) == SENDERS * EACH
        assert [event.run_seq for event in events] == list(range(1, len(events) + 1))
    server.remove()
