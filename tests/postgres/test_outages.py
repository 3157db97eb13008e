"""Servers that stop responding, close all connections, are restarted, or crash under load."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import anyio.to_thread
import asyncpg
import pytest

from ocean import Clog, Ocean, Ok, Outcome, StoreBusy, Tick
from tests.postgres.proxy import proxied
from tests.postgres.server import Server

pytestmark = pytest.mark.anyio

SENDERS, EACH = 6, 12
THROWS = 11
CUTS = 5
Disturb = Callable[[Server, "Load"], Coroutine[Any, Any, None]]


@pytest.fixture
def server() -> Iterator[Server]:
    """A separate server; what it has acknowledged is recorded before."""
    server = Server(synchronous_commit="on")
    yield server
    server.remove()


async def test_a_result_that_never_comes_is_looked_up(real_database: str) -> None:
    async with (
        proxied(f"{real_database}?statement_ms=1000") as (url, proxy),
        Ocean.open(url, clogs=[Clog("c")]) as ocean,
    ):
        run = await ocean.create_run(session_id="s", clog_id="c")
        proxy.arm("swallow", b"zanzibar")
        await ocean.signal(run.run_id, "zanzibar")
        assert proxy.has_cut.is_set()
        assert [entry.body for entry in await ocean.list_inputs(run.run_id)] == ["zanzibar"]


class Load:
    """Two instances: some clients send signals to a run, while both advance it."""

    def __init__(self, *oceans: Ocean) -> None:
        self.oceans = oceans
        self.acknowledged: list[str] = []
        self.unsure: list[str] = []
        self.is_over = False
        self._has_sent_one = anyio.Event()

    async def send(self, run_id: str) -> None:
        async with anyio.create_task_group() as senders:
            for number in range(SENDERS):
                senders.start_soon(self._send, self.oceans[number % len(self.oceans)], run_id, number)
        self.is_over = True

    async def _send(self, ocean: Ocean, run_id: str, sender: int) -> None:
        for number in range(EACH):
            word = f"{sender}-{number}"
            try:
                await ocean.signal(run_id, word)
                self.acknowledged.append(word)
            except StoreBusy:
                self.unsure.append(word)
            self._has_sent_one.set()
            self._has_sent_one = anyio.Event()

    async def poke(self, ocean: Ocean) -> None:
        while not self.is_over:
            try:
                await ocean.advance(budget_ms=200)
            except StoreBusy:
                continue

    async def has_sent(self, count: int) -> None:
        while len(self.acknowledged) + len(self.unsure) < count:
            await self._has_sent_one.wait()


async def restart(server: Server, load: Load) -> None:
    await load.has_sent(SENDERS)
    await anyio.to_thread.run_sync(server.stop)
    await anyio.to_thread.run_sync(server.start)


async def crash(server: Server, load: Load) -> None:
    await load.has_sent(SENDERS)
    await anyio.to_thread.run_sync(lambda: server.stop(is_crash=True))
    await anyio.to_thread.run_sync(server.start)


async def throw_out(server: Server, load: Load) -> None:
    """Cut all connections after every few signals, whatever they are doing."""
    db = await asyncpg.connect(f"{server.url}/postgres")
    for number in range(1, THROWS + 1):
        await load.has_sent(number * SENDERS * EACH // (THROWS + 1))
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'ocean%' AND pid <> pg_backend_pid()"
        )
    await db.close()


def hearing() -> Clog:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.emit("heard", tick.input)
        return Ok()

    return clog


async def bear(load: Load, ocean: Ocean, trouble: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Every acknowledged signal is there once; every other one is there once or not at all."""
    run = await ocean.create_run(session_id="s", clog_id="c")
    async with anyio.create_task_group() as tasks:
        for each in load.oceans:
            tasks.start_soon(load.poke, each)
        tasks.start_soon(trouble)
        tasks.start_soon(load.send, run.run_id)
    while (await ocean.advance(budget_ms=5_000)).advanced:
        pass
    events = await ocean.read_events(run.run_id, limit=1_000)
    words = Counter(event.payload for event in events if event.type == "heard")
    assert set(words.values()) == {1}
    assert set(load.acknowledged) <= words.keys() <= {*load.acknowledged, *load.unsure}
    assert len(load.acknowledged) + len(load.unsure) == SENDERS * EACH
    assert [event.run_seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("disturb", [restart, crash, throw_out], ids=lambda disturb: disturb.__name__)
async def test_outages_under_load_lose_and_repeat_nothing(server: Server, disturb: Disturb) -> None:
    url = f"{server.url}/postgres"
    async with Ocean.open(url, clogs=[hearing()]) as ocean, Ocean.open(url, clogs=[hearing()]) as other:
        load = Load(ocean, other)
        await bear(load, ocean, lambda: disturb(server, load))


async def test_commits_whose_results_are_cut_off_under_load_are_made_once(real_database: str) -> None:
    async with (
        proxied(real_database) as (url, proxy),
        Ocean.open(url, clogs=[hearing()]) as ocean,
        Ocean.open(url, clogs=[hearing()]) as other,
    ):
        load = Load(ocean, other)

        async def cut_off() -> None:
            for _ in range(CUTS):
                proxy.arm("after", b"deliver_signal")
                await proxy.has_cut.wait()

        await bear(load, ocean, cut_off)
        assert load.unsure == []
