"""Rows: one exact read, one write, versions at commit; clearing, null, models, history."""

from typing import Any

import anyio
import pytest

from ocean import CLEAR, Continue, Done, Failed, Ok, Outcome, Tick
from tests.lifecycle.acting import Act, Script, dump, log, look, stage, start

pytestmark = pytest.mark.anyio


async def test_ids_default_to_those_of_the_tick_in_every_scope() -> None:
    """R5: `read(run=True)` and `emit` need no ids, and what they write can be found."""

    async def act(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, session=True, global_=True, tick=["a"])
        assert (rows.has_run, rows.has_session, rows.has_global, rows.tick) == (False, False, False, {})
        await tick.write(run="r", session="s", global_="g", tick={"a": "t"})
        await tick.emit("said", 1)
        return Continue() if tick.number == 1 else Ok()

    async def again(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, session=True, global_=True, ticks=[1])
        return Done([rows.run, rows.session, rows.global_, rows.ticks[1]["a"]])

    async with stage(Script(act, again)) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == ["r", "s", "g", "t"]
        (event,) = await log(w, run_id, "said")
        assert (event.run_id, event.session_id, event.clog_id, event.tick, event.call) == (run_id, "s", "c", 1, 1)


async def test_session_and_global_rows_are_shared_and_run_rows_are_not() -> None:
    async def count(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, session=True, global_=True)
        totals = [(row or 0) + 1 for row in (rows.run, rows.session, rows.global_)]
        await tick.write(run=totals[0], session=totals[1], global_=totals[2])
        return Done(totals)

    async with stage(Script(count)) as w:
        runs = [await start(w, session_id="s1"), await start(w, session_id="s1"), await start(w, session_id="s2")]
        totals = [await w.ocean.result(run_id) for run_id in runs]
        assert totals == [[1, 1, 1], [1, 2, 2], [1, 1, 3]]


async def _fails_with(act: Act) -> tuple[str, str]:
    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        run = await look(w, run_id)
        assert run.status == "pending"
        assert run.error is not None
        tables = await dump(w)
        assert [tables[f"ocean_storage_{scope}"] for scope in ("run", "session", "global", "tick")] == [[]] * 4
        return run.error["code"], run.error["message"]


async def test_a_second_read_of_other_rows_is_refused_and_of_the_same_rows_allowed() -> None:
    async def twice(tick: Tick) -> Outcome:
        first = await tick.read(run=True, session=True)
        assert (await tick.read(session=True)).session == first.session
        await tick.read(global_=True)
        return Ok()

    code, message = await _fails_with(twice)
    assert code == "read_spent"
    assert "name all rows in one read" in message


async def test_a_second_write_is_refused() -> None:
    async def twice(tick: Tick) -> Outcome:
        await tick.read(run=True, session=True)
        await tick.write(run=1)
        await tick.write(session=1)
        return Ok()

    assert (await _fails_with(twice))[0] == "write_spent"


@pytest.mark.parametrize(
    "written", [{"run": 1}, {"session": 1}, {"global_": CLEAR}, {"tick": {"b": 1}}, {"runs": {"other": 1}}]
)
async def test_a_row_that_was_not_read_exactly_cannot_be_written(written: dict[str, Any]) -> None:
    async def blind(tick: Tick) -> Outcome:
        await tick.read(tick=["a"], history=5)
        await tick.write(**written)
        return Ok()

    assert (await _fails_with(blind))[0] == "not_read"


async def test_a_row_changed_between_read_and_commit_causes_another_call() -> None:
    """R1: a value computed from an old row is not written over a newer one."""
    began, go_on = anyio.Event(), anyio.Event()

    async def slow(tick: Tick) -> Outcome:
        rows = await tick.read(session=True)
        began.set()
        await go_on.wait()
        await tick.write(session=(rows.session or []) + ["slow"])
        return Ok()

    script = Script(slow)

    @script.method
    async def add(tick: Tick, payload: Any) -> None:
        rows = await tick.read(session=True)
        await tick.write(session=(rows.session or []) + [payload])

    async with stage(script) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await began.wait()
            await w.ocean.call_clog(clog_id="c", session_id="s", method="add", payload="quick")
            go_on.set()
        assert (await dump(w))["ocean_storage_session"][0][2] == '["quick","slow"]'
        assert [(seen.call, seen.attempt) for seen in script.seen] == [(1, 0), (2, 0)]
        (restarted,) = await log(w, run_id, "tick.restarted")
        assert (restarted.call, restarted.payload["because"]) == (2, "conflict")


@pytest.mark.parametrize(("guard", "calls"), [(False, 1), (True, 2)])
async def test_a_row_that_is_only_read_is_checked_if_it_is_guarded(guard: bool, calls: int) -> None:
    async def decide(tick: Tick) -> Outcome:
        rows = await tick.read(session=True, guard=guard)
        if tick.call_number == 1:
            await w.ocean.call_clog(clog_id="c", session_id="s", method="close")
        return Done("open" if not rows.has_session else "closed")

    script = Script(decide)

    @script.method
    async def close(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session="closed")

    async with stage(script) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == ("closed" if guard else "open")
        assert len(script.seen) == calls


async def test_a_function_is_applied_to_the_row_as_it_is_at_commit() -> None:
    async def add(tick: Tick) -> Outcome:
        await tick.read(session=True)
        await w.ocean.call_clog(clog_id="c", session_id="s", method="ten")
        await tick.write(session=lambda old: (old or 0) + 1)
        return Ok()

    script = Script(add)

    @script.method
    async def ten(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session=lambda old: (old or 0) + 10)

    async with stage(script) as w:
        for _ in range(3):
            await start(w)
        await w.drain()
        assert (await dump(w))["ocean_storage_session"][0][2] == "33"
        assert len(script.seen) == 3


async def test_a_function_that_raises_at_commit_is_a_failed_attempt() -> None:
    async def bad(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run=lambda old: old["missing"])
        return Ok()

    assert await _fails_with(bad) == ("exception", "TypeError: 'NoneType' object is not subscriptable")


async def test_writing_the_row_of_an_unknown_run_is_not_retried_for_ever() -> None:
    calls: list[int] = []

    async def write_missing_row(tick: Tick) -> Outcome:
        calls.append(tick.call_number)
        await tick.read(runs=["ghost"])
        await tick.write(runs={"ghost": 1})
        return Ok() if len(calls) < 20 else Failed("it would go on")

    await _fails_with(write_missing_row)
    assert len(calls) <= 4
