"""What one signal over HTTP costs in units of work, with everything that the process does because of it."""

import inspect
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.lowlevel
import httpx2
import pytest

from ocean import Clog, Ok, Outcome, Tick
from ocean.http.app import make_app
from ocean.kernel.store import Store
from ocean.testing import world
from tests.http.kit import listening
from tests.http.stream_client import Watcher
from tests.postgres.server import fresh_database, return_database

pytestmark = pytest.mark.anyio

MAX_UNITS = 14
WAITING = ("next_commit", "close")
"""Verbs that run no unit of work."""


def count_units(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the name of each unit of work that this store runs."""
    units: list[str] = []

    def recorded(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def call(*positional: Any, **named: Any) -> Awaitable[Any]:
            units.append(name)
            return verb(*positional, **named)

        return call

    for name in dir(Store):
        verb = getattr(store, name, None)
        if inspect.iscoroutinefunction(verb) and name not in WAITING:
            monkeypatch.setattr(store, name, recorded(name, verb))
    return units


async def until_idle(get_run: Callable[[str], Awaitable[Any]]) -> None:
    """Wait until the process does nothing more: each round is a trip to the database behind all earlier ones."""
    for _ in range(30):
        await get_run("nothing")
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def watching(port: int, run_id: str) -> AsyncIterator[Watcher]:
    watcher = await Watcher.open(port, f"/v1/runs/{run_id}/events")
    try:
        yield watcher
    finally:
        await watcher.close()


@pytest.mark.parametrize("database", ["memory", "file", "postgres"])
async def test_a_signal_with_one_watcher_and_no_ticker_makes_at_most_fourteen_units(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.emit("greeted", tick.input)
        return Ok()

    url = {"memory": "sqlite://:memory:", "file": f"sqlite:///{tmp_path / 'ocean.db'}"}.get(
        database
    ) or fresh_database()
    async with world(clogs=[clog], url=url) as w:
        get_run = w.store.get_run
        run = await w.ocean.create_run(session_id="s", clog_id="c")
        async with (
            listening(make_app(w.ocean)) as (_, port),
            httpx2.AsyncClient() as http,
            watching(port, run.run_id) as watcher,
        ):
            await until_idle(get_run)
            units = count_units(w.store, monkeypatch)
            counts = []
            for number in range(5):
                units.clear()
                path = f"http://127.0.0.1:{port}/v1/runs/{run.run_id}/signal"
                assert (await http.post(path, json={"input": number})).status_code == 202
                while (await watcher.next()).event != "tick.committed":
                    pass
                await until_idle(get_run)
                assert units.count("commit_tick") == 1, units
                counts.append(len(units))
            # Sometimes the stream also checks for commits of other processes.
            assert statistics.median(counts) <= MAX_UNITS, (counts, units)
    if database == "postgres":
        return_database(url)
