"""A database of an older version, with live runs of every status, opens with this code and loses nothing.

`sqlite-1` was made by the first kernel that landed (0146cf2, the last commit before concurrency keys): schema 1 of
SQLite. Its tables are those of 6297035, the oldest commit whose databases open: before it, migration 1 was still being
written under the same number. `postgres-1` was made by the commit that landed the store on PostgreSQL (573ae11). The
other two were made by the last commit before schema 6 of SQLite and schema 10 of PostgreSQL, and have flows in
mid-flight and a schedule. What each run must become was recorded by driving the same database to its end on that code.
"""

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ocean import Ocean
from ocean.stores.postgres.client.connection import install_test_clock
from ocean.stores.postgres.migrate import migrations as postgres_migrations
from ocean.testing import world
from tests.invariants import check
from tests.postgres.server import fresh_database, return_database
from tests.postgres.test_schema import shape
from tests.upgrades import flows, story
from tests.upgrades.acts import AT_THE_END, clogs_of, drive
from tests.upgrades.stored import NAMES, expected_of, restored

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count effects from 0, and let the steps succeed in which the old process died."""
    story.effects.clear()
    monkeypatch.setattr(flows, "is_again", True)


async def opened_once(url: str) -> None:
    """Open the database as any program does, which migrates it, and only then give it the time of a test."""
    async with Ocean.open(url):
        pass
    if url.startswith("postgres"):
        server: Any = await asyncpg.connect(url)
        await install_test_clock(server)
        await server.close()


async def events_of(ocean: Ocean, after: int = 0) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    while page := await ocean.read_events(after=after, limit=1_000):
        found += [(event.seq, event.type, event.run_id, event.run_seq, event.payload) for event in page]
        after = page[-1].seq
    return found


@pytest.mark.parametrize("name", NAMES)
async def test_every_live_run_of_an_older_database_ends_as_on_the_code_that_made_it(name: str, tmp_path: Path) -> None:
    """Signals arrive once and in order, timers fire, dead calls are repeated under their tick with its stored steps,
    parked, delayed, leased and paused runs go on, flows continue, and repeated requests are still known."""
    expected = expected_of(name)
    async with restored(name, tmp_path) as url:
        await opened_once(url)
        async with world(clogs=clogs_of(expected["parts"]), url=url) as w:
            await check(w)
            found = await drive(w, expected["parts"], expected["notes"])
            await check(w)
    assert found["callers"] == expected["callers"]
    for run_id, result in expected["runs"].items():
        assert found["runs"][run_id] == result, run_id
    assert found["runs"].keys() == expected["runs"].keys()


@pytest.mark.parametrize("name", NAMES)
async def test_the_log_of_an_older_database_continues_after_its_last_event(name: str, tmp_path: Path) -> None:
    expected = expected_of(name)
    async with restored(name, tmp_path) as url:
        await opened_once(url)
        async with world(clogs=clogs_of(expected["parts"]), url=url) as w:
            before = await events_of(w.ocean)
            cursor = await w.ocean.last_cursor()
            assert (before[-1][0], len(before)) == (cursor, cursor)
            await drive(w, expected["parts"], expected["notes"])
            after = await events_of(w.ocean)
            later = await events_of(w.ocean, after=cursor)
    assert after == before + later
    assert [event[0] for event in after] == list(range(1, len(after) + 1))
    assert {event[2] for event in later} >= {"crashed", "timer", "pending", AT_THE_END}


@pytest.mark.parametrize("name", NAMES)
async def test_a_crashed_run_of_an_older_database_keeps_its_tick_its_input_and_its_steps(
    name: str, tmp_path: Path
) -> None:
    expected = expected_of(name)
    async with restored(name, tmp_path) as url:
        await opened_once(url)
        async with world(clogs=clogs_of(expected["parts"]), url=url) as w:
            (tick,) = await w.ocean.list_ticks("crashed")
            assert (tick.tick, tick.calls, tick.committed_at) == (1, 1, None)
            w.clock.advance(29_999)
            await w.drain()
            assert [tick.calls for tick in await w.ocean.list_ticks("crashed")] == [1]
            w.clock.advance(1)
            await w.drain()
            (tick,) = await w.ocean.list_ticks("crashed")
            assert (tick.tick, tick.calls) == (1, 2)
            done = await w.ocean.get_run("crashed")
            assert done is not None
            assert done.output == [["created", "begin"], "pay of tick 1", 1]
            assert story.effects["crashed pay"] == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("postgres")])
async def test_an_upgraded_database_has_the_functions_of_a_new_one_and_no_older(name: str, tmp_path: Path) -> None:
    """Also of the first functions, whose signatures are in the stored database."""
    fresh = fresh_database(has_test_clock=False)
    async with restored(name, tmp_path) as url:
        async with Ocean.open(url):
            pass
        one: Any = await asyncpg.connect(url)
        two: Any = await asyncpg.connect(fresh)
        try:
            upgraded, new = await shape(one), await shape(two)
        finally:
            await one.close()
            await two.close()
            return_database(fresh)
    assert upgraded == new
    assert upgraded[-1] == [(postgres_migrations()[-1][0],)]
