"""Opening: an empty file becomes a database, an old one is migrated, a newer one is refused."""

import sqlite3
from pathlib import Path

import pytest

from ocean import Continue, Done, Ocean, OceanError, Ok, Outcome, Tick
from ocean.testing import ManualClock, world
from tests.invariants import check_tables
from tests.lifecycle.acting import Script, look, start

pytestmark = pytest.mark.anyio


async def test_an_empty_file_becomes_a_database_that_works_at_once(tmp_path: Path) -> None:
    """O11: the schema is in the package and is created on opening, at its newest version."""
    path = tmp_path / "ocean.db"
    async with Ocean.open(f"sqlite:///{path}", clogs=[Script(Done(1))]) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="c", input=None)
        assert await ocean.result(run.run_id) == 1
    with sqlite3.connect(path) as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(runs)")}
        assert {"status", "due_at", "lock_epoch", "attempt", "wake_at", "deadline_at", "priority"} <= columns
        assert db.execute("PRAGMA user_version").fetchone()[0] >= 1
        db.row_factory = sqlite3.Row
        check_tables(db, run.created_at)


async def test_unfinished_runs_are_continued_by_the_next_process(tmp_path: Path) -> None:
    """Close while a run has a timer set, and open again."""
    url = f"sqlite:///{tmp_path / 'ocean.db'}"

    async def arm(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=1_000, input="ring")
        await tick.read(run=True)
        await tick.write(run="kept")
        return Ok()

    async def rung(tick: Tick) -> Outcome:
        return Done([(await tick.read(run=True)).run, tick.timer, tick.input])

    async with world(clogs=[Script(arm)], url=url) as w:
        run_id = await start(w)
        await w.drain()
    async with world(clogs=[Script(rung)], url=url) as w:
        assert await w.drain() == []
        w.clock.advance(1_000)
        await w.drain()
        assert (await look(w, run_id)).output == ["kept", "t", "ring"]


async def test_two_instances_on_one_file_share_the_work(tmp_path: Path) -> None:
    """R10: foreign keys, and everything else, hold on every connection."""
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    script, clock = Script(Continue(), Done()), ManualClock()
    async with Ocean.open(url, clogs=[script], clock=clock) as one, Ocean.open(url, clogs=[script], clock=clock) as two:
        run = await one.create_run(session_id="s", clog_id="c", input=None)
        assert (await one.advance(max_ticks=1)).advanced == 1
        assert (await two.advance(max_ticks=1)).advanced == 1
        assert await one.result(run.run_id) is None
        assert await two.delete_session("s") == 1
        assert await one.get_run(run.run_id) is None
        with sqlite3.connect(tmp_path / "ocean.db") as db:
            assert [
                db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("ocean_ticks", "ocean_inbox")
            ] == [
                0,
                0,
            ]


async def test_a_schema_newer_than_the_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ocean.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()
    with pytest.raises(OceanError, match="the database has schema 9999"):
        async with Ocean.open(f"sqlite:///{path}"):
            pass


@pytest.mark.parametrize("url", ["mysql://x", "sqlite://ocean.db", "sqlite:///", "", "sqlite:////no/such/folder/x.db"])
async def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(OceanError) as refusal:
        async with Ocean.open(url):
            pass
    assert refusal.value.code == "store_unusable"


async def test_a_closed_ocean_raises_a_clear_error() -> None:
    async with Ocean.open("sqlite://:memory:") as ocean:
        pass
    with pytest.raises(OceanError, match="closed"):
        await ocean.list_runs()
