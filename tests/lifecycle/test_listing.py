"""Finding runs: filters, attributes, pages, counts, ticks."""

from typing import Any

import pytest

from ocean import BadCursor, Continue, Done, InvalidValue, Ok, Outcome, RunNotFound, Tick, Within
from tests.lifecycle.acting import Script, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_pages_join_to_the_whole_list_in_either_order() -> None:
    """O7: runs can be listed; runs created on the same millisecond neither repeat nor get lost."""
    async with stage(Script()) as w:
        ids = []
        for n in range(7):
            ids.append(await start_idle(w))
            w.clock.advance(n % 2)
        for order, expected in (("oldest", ids), ("newest", ids[::-1])):
            found: list[str] = []
            cursor: str | None = None
            while True:
                page = await w.ocean.list_runs(order=order, limit=3, cursor=cursor)  # type: ignore[arg-type]
                found += [run.run_id for run in page.runs]
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert found == expected


async def test_pages_are_stable_while_runs_are_added() -> None:
    async with stage(Script()) as w:
        ids = [await start_idle(w) for _ in range(4)]
        first = await w.ocean.list_runs(limit=2)
        w.clock.advance(1)
        await start_idle(w)
        second = await w.ocean.list_runs(limit=2, cursor=first.next_cursor)
        assert [run.run_id for run in (*first.runs, *second.runs)] == ids[::-1]
        assert second.next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "!!!!", "bnVsbA==", "WzEsMl0=", "WzFd", "e30="])
async def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    async with stage(Script()) as w:
        with pytest.raises(BadCursor):
            await w.ocean.list_runs(cursor=cursor)


async def test_filters_narrow_by_clog_status_session_and_parent() -> None:
    async def create_child(tick: Tick) -> Outcome:
        await tick.create_run(clog_id="d")
        return Done()

    async with stage(Script(create_child), Script(clog_id="d")) as w:
        one = await start(w, session_id="s1")
        two = await start_idle(w, session_id="s2")
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=one)).runs

        async def found(**where: Any) -> set[str]:
            runs = {run.run_id for run in (await w.ocean.list_runs(**where)).runs}
            assert (await w.ocean.count_runs(**where)).count == len(runs)
            return runs

        assert await found(clog_id="c") == {one, two}
        assert await found(status="done") == {one}
        assert await found(status="idle", session_id="s2") == {two}
        assert await found(session_id="s1") == {one, child.run_id}
        assert await found(clog_id="c", session_id="s1", status="idle") == set()
        assert await found(clog_id="nobody") == set()


async def test_attributes_are_equal_by_kind_and_value() -> None:
    async with stage(Script(), Script(clog_id="d")) as w:
        values: list[Any] = ["1", 1, True, 0, False, "", -1.5, "é"]
        ids = [await start_idle(w, attributes={"x": value, "n": index % 2}) for index, value in enumerate(values)]
        await start_idle(w, clog_id="d", attributes={"x": 1})
        for run_id, value in zip(ids, values, strict=True):
            page = await w.ocean.list_runs(clog_id="c", attributes={"x": value})
            assert [run.run_id for run in page.runs] == [run_id], value
        (same,) = (await w.ocean.list_runs(clog_id="c", attributes={"x": 1.0})).runs
        assert same.run_id == ids[1]
        both = await w.ocean.list_runs(clog_id="c", attributes={"n": 0, "x": True})
        assert [run.attributes for run in both.runs] == [{"n": 0, "x": True}]
        with pytest.raises(InvalidValue, match="attributes need a clog_id"):
            await w.ocean.list_runs(attributes={"x": 1})


async def test_a_tick_sets_and_removes_attributes_with_its_commit() -> None:
    async def paint(tick: Tick) -> Outcome:
        await tick.set_attributes(colour="red", old=None)
        found = await tick.list_runs(clog_id="c", attributes={"colour": "red"})
        assert found.runs == ()
        return Ok()

    async with stage(Script(paint)) as w:
        run_id = await start(w, attributes={"old": 1, "kept": True})
        await w.drain()
        assert (await look(w, run_id)).attributes == {"colour": "red", "kept": True}
        assert (await w.ocean.count_runs(clog_id="c", attributes={"old": 1})).count == 0


async def test_a_run_has_at_most_sixteen_attributes_also_by_adding() -> None:
    async def one_more(tick: Tick) -> Outcome:
        await tick.set_attributes(extra=1)
        return Ok()

    full = {f"a{n}": n for n in range(16)}
    async with stage(Script(one_more)) as w:
        run_id = await start(w, attributes=full)
        await w.drain()
        run = await look(w, run_id)
        assert run.error is not None
        assert (run.error["code"], run.attributes) == ("invalid_value", full)


async def test_a_count_reports_that_it_was_capped() -> None:
    async with stage(Script()) as w:
        for _ in range(5):
            await start_idle(w)
        exact, capped = await w.ocean.count_runs(cap=5), await w.ocean.count_runs(cap=4)
        assert ((exact.count, exact.is_capped), (capped.count, capped.is_capped)) == ((5, False), (4, True))


async def test_ticks_are_listed_in_order_and_by_page() -> None:
    async with stage(Script(Continue(), Continue(), Done(), version="7")) as w:
        run_id = await start(w)
        await w.drain()
        ticks = await w.ocean.list_ticks(run_id)
        assert [(tick.tick, tick.reason, tick.outcome, tick.calls, tick.epoch) for tick in ticks] == [
            (1, "created", "continue", 1, 1),
            (2, "continue", "continue", 1, 2),
            (3, "continue", "done", 1, 3),
        ]
        assert {(tick.version, tick.instance_id) for tick in ticks} == {("7", w.ocean.instance_id)}
        assert await w.ocean.list_ticks(run_id, after=1, limit=1) == [ticks[1]]
        with pytest.raises(RunNotFound):
            await w.ocean.list_ticks("nobody")


async def test_the_input_of_a_run_reaches_its_first_tick() -> None:
    """O6: what a run is created with can be read."""
    script = Script(Done())
    async with stage(script) as w:
        await start(w, {"state": {"n": 1}})
        await w.drain()
        assert script.bodies == [{"state": {"n": 1}}]


async def test_clogs_are_listed_with_what_instances_registered() -> None:
    async with stage(Script(version="2", ends=(Ok(),))) as w:
        await w.instance([Script(clog_id="elsewhere")])
        await w.ocean.pause_clog("c")
        listed_clogs = [
            (clog.clog_id, clog.version, clog.has_on_end, clog.paused) for clog in await w.ocean.list_clogs()
        ]
        assert listed_clogs == [("c", "2", True, True), ("elsewhere", "1", False, False)]


async def test_a_range_of_an_attribute_sets_the_order() -> None:
    async with stage(Script(), Script(clog_id="d")) as w:
        amounts = [30, -5, 2.5, 100, 2.5]
        ids = [
            await start_idle(w, clog_id="cd"[n % 2], attributes={"amount": amount}) for n, amount in enumerate(amounts)
        ]
        await start_idle(w, attributes={"amount": "many"})
        await start_idle(w)

        async def found(**more: Any) -> list[str]:
            where = {"clog_id": {"c", "d"}, "attributes": {"amount": Within(gt=-5, lte=100)}}
            return [run.run_id for run in (await w.ocean.list_runs(**(where | more))).runs]

        by_amount = [ids[2], ids[4], ids[0], ids[3]]
        assert await found() == by_amount
        assert await found(order="ascending") == by_amount
        assert await found(order="descending") == by_amount[::-1]
        assert await found(clog_id="d") == [ids[3]]


async def test_an_ended_range_sets_the_order_to_that_of_the_ends() -> None:
    async with stage(Script(Done())) as w:
        ids = [await start(w) for _ in range(3)]
        began = w.clock.now()
        for run_id in reversed(ids):
            w.clock.advance(1)
            await w.ocean.advance(run_id=run_id)
        ended = await w.ocean.list_runs(ended_from=began)
        assert [run.run_id for run in ended.runs] == ids
        some = await w.ocean.list_runs(ended_from=began + 1, ended_until=began + 3, order="oldest")
        assert [run.run_id for run in some.runs] == [ids[2], ids[1]]


async def test_an_agent_finds_runs_by_sets_and_ranges_too() -> None:
    found: list[Any] = []

    async def search(tick: Tick) -> Outcome:
        query = {"clog_id": ["c"], "status": ["idle"], "attributes": {"n": {"gte": 2}, "kind": ["x", "y"]}}
        found.append(await tick.tools.invoke("ocean.runs.list", query | {"order": "descending", "limit": 2}))
        with pytest.raises(InvalidValue, match="attributes"):
            await tick.tools.invoke("ocean.runs.list", {"clog_id": "c", "attributes": {"n": {"above": 2}}})
        return Ok()

    async with stage(Script(), Script(search, clog_id="d")) as w:
        ids = [await start_idle(w, attributes={"n": n, "kind": "xyz"[n % 3]}) for n in range(8)]
        await start(w, clog_id="d")
        await w.drain()
        (page,) = found
        assert [run["run_id"] for run in page["runs"]] == [ids[7], ids[6]]
        assert page["next_cursor"] is not None
