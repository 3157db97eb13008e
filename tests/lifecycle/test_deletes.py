"""Deleting: ticks and runs by a tick, runs and sessions by callers; rows cascade, events stay."""

from typing import Any

import pytest

from ocean import Continue, Done, Ok, Outcome, RunNotFound, Tick
from ocean.testing import world
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio

OF_RUNS = ("runs", "ocean_run_details", "ocean_inbox", "ocean_ticks", "ocean_steps", "ocean_attributes", "ocean_dedupe")
ROWS = ("ocean_storage_run", "ocean_storage_tick")


async def _fill(tick: Tick) -> Outcome:
    """Leave something in every table that belongs to a run."""
    await tick.read(run=True, tick=["a"])
    await tick.write(run=1, tick={"a": 1})
    await tick.step("s", lambda key: 1, scope="run")
    await tick.set_timer("t", after_ms=1_000_000)
    await tick.emit("filled")
    return Ok()


async def _counts(tables: dict[str, list[Any]]) -> dict[str, int]:
    return {name: len(tables[name]) for name in (*OF_RUNS, *ROWS)}


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_deleting_a_run_leaves_no_row_behind_but_its_events(kind: str, tmp_path: Any) -> None:
    """R10, O7: cascades work on every connection, on files as in memory."""
    url = "sqlite://:memory:" if kind == "memory" else f"sqlite:///{tmp_path}/ocean.db"
    async with stage(Script(_fill), url=url) as w:
        run_id = await start(w, attributes={"colour": "red"}, dedupe_key="k")
        await w.drain()
        assert all((await _counts(await dump(w))).values())
        before = await types(w, run_id)
        assert await w.ocean.delete_run(run_id, actor="ada") == 1
        assert not any((await _counts(await dump(w))).values())
        assert await w.ocean.get_run(run_id) is None
        assert await types(w, run_id) == [*before, "run.failed", "run.deleted"]
        assert (await log(w, run_id))[-1].actor == "ada"
        with pytest.raises(RunNotFound):
            await w.ocean.delete_run(run_id)


async def test_children_are_deleted_with_their_run() -> None:
    async def create_child(tick: Tick) -> Outcome:
        await tick.create_run(clog_id="c", session_id="elsewhere")
        return Ok()

    async with stage(Script(create_child)) as w:
        run_id = await start(w)
        other = await start_idle(w)
        await w.drain()
        assert await w.ocean.delete_run(run_id) == 2
        assert [run.run_id for run in (await w.ocean.list_runs()).runs] == [other]
        assert len(await log(w, None, "run.deleted")) == 2


async def test_deleting_a_session_deletes_all_its_runs_and_rows() -> None:
    async def note(tick: Tick) -> Outcome:
        await tick.read(session=True)
        await tick.write(session=1)
        return await _fill_other(tick)

    async def _fill_other(tick: Tick) -> Outcome:
        await tick.emit("noted")
        return Ok()

    async with stage(Script(note), Script(note, clog_id="d")) as w:
        gone = [await start(w), await start(w, clog_id="d")]
        kept = await start(w, session_id="kept")
        await w.drain()
        assert await w.ocean.delete_session("s") == 2
        tables = await dump(w)
        assert [row[0] for row in tables["ocean_sessions"]] == ["kept"]
        assert [row[1] for row in tables["ocean_storage_session"]] == ["kept"]
        assert [await w.ocean.get_run(run_id) for run_id in gone] == [None, None]
        assert (await look(w, kept)).status == "idle"
        (deleted,) = await log(w, None, "session.deleted")
        assert (deleted.session_id, deleted.payload) == ("s", {"runs": 2})
        assert await w.ocean.delete_session("never seen") == 0


async def test_a_tick_can_delete_its_own_run() -> None:
    """R8: the outcome is not lost: the run ends, its parent is notified, and it is deleted."""

    async def vanish(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(delete_runs=[tick.run_id])
        await tick.emit("farewell")
        return Ok()

    async with stage(Script(vanish)) as w:
        run_id = await start(w)
        (result,) = await w.drain()
        assert (result.outcome, result.status) == ("ok", None)
        assert await w.ocean.get_run(run_id) is None
        assert (await types(w, run_id))[1:] == ["farewell", "tick.committed", "run.failed", "run.deleted"]


async def test_a_clog_cannot_delete_a_run_of_another_clog() -> None:
    async def grab(tick: Tick) -> Outcome:
        await tick.read(runs=[other])
        await tick.write(delete_runs=[other])
        return Ok()

    async with stage(Script(grab), Script(clog_id="d")) as w:
        other = await start_idle(w, clog_id="d")
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert "must not delete it" in error["message"]
        assert (await look(w, other)).status == "idle"


async def test_a_session_with_foreign_runs_cannot_be_deleted_by_a_clog() -> None:
    """R8: `delete_session` by one clog does not delete the data of others."""

    async def clear(tick: Tick) -> Outcome:
        await tick.read(session=True)
        await tick.write(delete_session=True)
        return Ok()

    async with stage(Script(clear), Script(clog_id="d")) as w:
        other = await start_idle(w, clog_id="d")
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert "must not delete session" in error["message"]
        await w.ocean.delete_run(other)
        w.clock.advance(1_000)
        await w.drain()
        assert (await dump(w))["ocean_sessions"] == []


async def test_earlier_ticks_can_be_deleted_if_they_were_read_whole() -> None:
    """R8: one row read is not enough to delete a tick."""

    async def forget(tick: Tick) -> Outcome:
        rows = await tick.read(ticks=[1], history=5)
        await tick.write(delete_ticks=[1])
        return Done([dict(rows.ticks[1]), [past.tick for past in rows.history]])

    async def blind(tick: Tick) -> Outcome:
        await tick.read(tick=["a"], history=5)
        await tick.write(delete_ticks=[1])
        return Ok()

    async def write(tick: Tick) -> Outcome:
        await tick.read(tick=["a", "b"])
        await tick.write(tick={"a": tick.number, "b": 0})
        return Continue()

    async with stage(Script(write, write, blind, forget)) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "not_read"
        w.clock.advance(1_000)
        assert await w.ocean.result(run_id) == [{"a": 1, "b": 0}, [1, 2]]
        assert [tick.tick for tick in await w.ocean.list_ticks(run_id)] == [2, 3]
        assert {row[2] for row in (await dump(w))["ocean_storage_tick"]} == {2}


async def test_a_tick_cannot_delete_itself() -> None:
    async def odd(tick: Tick) -> Outcome:
        await tick.read(ticks=[tick.number])
        await tick.write(delete_ticks=[tick.number])
        return Ok()

    async with stage(Script(odd)) as w:
        run_id = await start(w)
        await w.drain()
        error = (await look(w, run_id)).error
        assert error is not None
        assert "delete_ticks must name earlier ticks" in error["message"]


async def test_an_id_used_again_after_deletion_continues_its_log() -> None:
    """`stage` is not used: its check would count a tick's commits over both runs with the id."""
    async with world(clogs=[Script(Done(1))]) as w:
        run_id = await start(w, run_id="fixed")
        await w.drain()
        length = len(await log(w, run_id))
        await w.ocean.delete_run(run_id)
        await start(w, run_id="fixed")
        await w.drain()
        numbers = [event.run_seq for event in await log(w, run_id)]
        assert numbers == list(range(1, 2 * length + 2))
        assert (await look(w, run_id)).output == 1
