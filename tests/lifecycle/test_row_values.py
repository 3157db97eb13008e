"""The values of rows: null and absence, versions, history, models, and the rows of other runs."""

from typing import Any

import pytest
from pydantic import BaseModel

from ocean import CLEAR, Continue, Done, KeyedRun, Ok, Outcome, Tick
from tests.lifecycle.acting import Script, dump, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_clearing_removes_a_row_while_none_stores_null() -> None:
    """R9: a stored null is a row, distinct from an absent one."""

    async def seen_and(tick: Tick, **written: Any) -> list[bool]:
        rows = await tick.read(run=True, session=True)
        await tick.write(**written)
        return [rows.has_run, rows.has_session, rows.run is None]

    async def null(tick: Tick) -> Outcome:
        return Continue([await seen_and(tick, run=None, session=1)])

    async def clear(tick: Tick) -> Outcome:
        return Continue([*tick.input, await seen_and(tick, run=CLEAR, session=lambda old: CLEAR)])

    async def look_again(tick: Tick) -> Outcome:
        return Done([*tick.input, await seen_and(tick)])

    async with stage(Script(null, clear, look_again)) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == [[False, False, True], [True, True, True], [False, False, True]]


async def test_a_version_is_never_reused_even_after_a_row_was_cleared() -> None:
    """Clearing and writing again between read and commit is a change as well."""

    async def decide(tick: Tick) -> Outcome:
        await tick.read(session=True)
        if tick.call_number == 1:
            for value in (CLEAR, "same"):
                written.append(value)
                await w.ocean.call_clog(clog_id="c", session_id="s", method="put")
        await tick.write(session="mine")
        return Ok()

    written: list[Any] = ["same"]
    script = Script(decide)

    @script.method
    async def put(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session=written[-1])

    async with stage(script) as w:
        await w.ocean.call_clog(clog_id="c", session_id="s", method="put")
        await start(w)
        await w.drain()
        assert len(script.seen) == 2


async def test_history_is_the_newest_ticks_oldest_first_and_skips_failed_attempts() -> None:
    """R7, R4: the newest n by tick number, presented ascending; what a failed attempt wrote is not there."""

    async def turn(tick: Tick) -> Outcome:
        rows = await tick.read(tick=["b", "a"], history=3)
        histories.append([(past.tick, dict(past.rows)) for past in rows.history])
        await tick.write(tick={"b": tick.input, "a": 0})
        if tick.input == 3 and tick.call_number == 1:
            raise ValueError("after the write")
        return Ok()

    histories: list[Any] = []
    script = Script(turn)
    async with stage(script) as w:
        run_id = await start_idle(w)
        for n in range(1, 6):
            await w.ocean.signal(run_id, n)
            await w.drain()
            w.clock.advance(1_000)
            await w.drain()
        assert histories[-1] == [(n, {"a": 0, "b": n}) for n in (2, 3, 4)]
        assert histories[3] == histories[2] == [(n, {"a": 0, "b": n}) for n in (1, 2)]


class Count(BaseModel):
    n: int = 0


async def test_a_state_model_makes_rows_typed() -> None:
    async def count(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, session=True)
        state = rows.run or Count()
        assert isinstance(state, Count)
        assert rows.session is None or isinstance(rows.session, Count)
        await tick.write(run=Count(n=state.n + 1), session=lambda old: Count(n=(old or Count()).n + 1))
        return Continue() if state.n < 2 else Done(state.model_dump())

    script = Script(count, run_state=Count, session_state=Count)
    async with stage(script) as w:
        run_id = await start(w)
        assert await w.ocean.result(run_id) == {"n": 2}
        assert (await dump(w))["ocean_storage_session"][0][2] == '{"n":3}'


async def test_rows_of_other_runs_are_found_by_id_and_by_dedupe_key() -> None:
    async def keep(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run=tick.input)
        return Ok()

    async def gather(tick: Tick) -> Outcome:
        rows = await tick.read(runs=[one], keys=["k", "free"])
        await tick.write(runs={one: "changed", two: "changed too"})
        keyed = rows.by_key["k"]
        assert keyed == KeyedRun(two, "second")
        assert rows.by_key["free"] is None
        return Done(dict(rows.runs))

    async with stage(Script(keep, keep, gather)) as w:
        one = await start(w, "first")
        await w.drain()
        two = await start(w, "second", dedupe_key="k")
        await w.drain()
        run_id = await start(w)
        assert await w.ocean.result(run_id) == {one: "first"}
        assert sorted(row[2] for row in (await dump(w))["ocean_storage_run"]) == ['"changed too"', '"changed"']
