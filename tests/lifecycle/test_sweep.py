"""Retention: a prefix of the log, ended runs (leaves first), request keys; in bounded batches."""

from typing import Any

import pytest

from ocean import Continue, Done, InvalidValue, Ok, Outcome, Tick
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio

DAY = 86_400_000


async def test_only_a_prefix_of_the_log_is_deleted() -> None:
    """O9: old events are deleted from the front; a reader before the cut gets a reset."""
    async with stage(Script()) as w:
        first = await start_idle(w)
        w.clock.advance(1_000)
        young = await start_idle(w)
        swept = await w.ocean.sweep(events_older_than_ms=500)
        assert (swept.events, swept.runs, swept.more) == (1, 0, False)
        assert [event.run_id for event in await w.ocean.read_events(after=1)] == [young]
        assert (await look(w, first)).status == "idle"
        reset, following = await w.ocean.read_events()
        assert (reset.type, reset.seq, reset.payload) == ("reset", 1, {"after": 0, "floor": 1})
        assert following.run_id == young


async def test_an_old_event_behind_a_young_one_stays() -> None:
    """O9: after the clock was set back, deleting by age alone would leave an unreported gap in the log."""
    async with stage(Script()) as w:
        await start_idle(w)
        w.clock.jump(10_000)
        await start_idle(w)
        w.clock.jump(-10_000)
        await start_idle(w)
        w.clock.jump(10_500)
        assert (await w.ocean.sweep(events_older_than_ms=1_000)).events == 1
        assert len(await w.ocean.read_events(after=1)) == 2


async def test_a_follower_of_a_cut_log_is_reset_once_and_continues() -> None:
    """O9: an explicit reset, never a silent gap; a run younger than the cut has lost nothing."""
    async with stage(Script(Continue(), Continue(), Done())) as w:
        run_id = await start(w)
        await w.ocean.advance(max_ticks=1)
        w.clock.advance(1_000)
        await w.drain()
        await w.ocean.sweep(events_older_than_ms=500)
        followed = [event async for event in w.ocean.follow(run_id)]
        assert [event.type for event in followed] == ["reset", "tick.committed", "tick.committed", "run.done"]
        assert [event.run_seq for event in followed] == [None, 3, 4, 5]
        young = await start_idle(w)
        await w.ocean.cancel_run(young)
        assert [event.type async for event in w.ocean.follow(young)] == ["run.created", "run.failed"]


async def test_a_run_s_log_continues_without_gaps_after_its_beginning_was_swept() -> None:
    async with stage(Script(Ok())) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        assert (await w.ocean.sweep(events_older_than_ms=0)).events == 2
        await w.ocean.signal(run_id)
        assert [event.run_seq for event in await w.ocean.read_events(run_id, after=2)] == [3]


async def test_finished_runs_are_deleted_after_their_time_and_live_ones_stay() -> None:
    async with stage(Script(Done(), Ok())) as w:
        done, idle = await start(w), await start(w)
        await w.drain()
        w.clock.advance(1_000)
        fresh = await start_idle(w)
        await w.ocean.cancel_run(fresh)
        swept = await w.ocean.sweep(runs_older_than_ms=500)
        assert swept.runs == 1
        assert await w.ocean.get_run(done) is None
        assert (await look(w, idle)).status == "idle"
        assert (await look(w, fresh)).status == "failed"
        assert [event.type for event in await log(w, done)][-1] == "run.deleted"


async def test_a_live_child_keeps_its_finished_parent() -> None:
    async def create_child(tick: Tick) -> Outcome:
        await tick.create_run(clog_id="child")
        return Done()

    async with stage(Script(create_child), Script(clog_id="child")) as w:
        run_id = await start(w)
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        w.clock.advance(1_000)
        assert (await w.ocean.sweep(runs_older_than_ms=0)).runs == 0
        await w.ocean.cancel_run(child.run_id)
        w.clock.advance(1)
        first, second = await w.ocean.sweep(runs_older_than_ms=0), await w.ocean.sweep(runs_older_than_ms=0)
        assert first.runs + second.runs == 2
        assert (await w.ocean.count_runs()).count == 0


async def test_a_sweep_works_in_batches_and_reports_if_there_is_more() -> None:
    async with stage(Script(Done())) as w:
        for _ in range(7):
            await start(w)
        await w.drain()
        w.clock.advance(1_000)
        part = await w.ocean.sweep(runs_older_than_ms=0, batch=2, max_batches=2)
        assert (part.runs, part.more) == (4, True)
        rest = await w.ocean.sweep(runs_older_than_ms=0, batch=2)
        assert (rest.runs, rest.more) == (3, False)


async def test_request_keys_are_deleted_after_a_day() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w, request_key="k")
        w.clock.advance(DAY)
        assert (await w.ocean.sweep()).requests == 0
        w.clock.advance(1)
        assert (await w.ocean.sweep()).requests == 1
        assert await start_idle(w, request_key="k") != run_id


async def test_a_sweep_that_names_nothing_removes_no_event_and_no_run() -> None:
    async with stage(Script(Done())) as w:
        await start(w)
        await w.drain()
        w.clock.advance(100 * DAY)
        before = await dump(w)
        swept = await w.ocean.sweep(requests_older_than_ms=None)
        assert (swept.events, swept.runs, swept.requests, swept.more) == (0, 0, 0, False)
        assert await dump(w) == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"events_older_than_ms": -1},
        {"runs_older_than_ms": -1},
        {"requests_older_than_ms": -1},
        {"batch": 0},
        {"batch": 10_001},
        {"max_batches": 0},
    ],
)
async def test_a_sweep_with_wrong_arguments_is_refused(wrong: dict[str, Any]) -> None:
    async with stage(Script(Done())) as w:
        await start(w)
        before = await dump(w)
        with pytest.raises(InvalidValue):
            await w.ocean.sweep(**wrong)
        assert await dump(w) == before


async def test_the_sum_so_far_is_reported_after_each_batch() -> None:
    reports: list[tuple[int, bool]] = []
    async with stage(Script()) as w:
        for _ in range(5):
            await start_idle(w)
        w.clock.advance(1_000)
        swept = await w.ocean.sweep(
            events_older_than_ms=500, batch=2, on_progress=lambda so_far: reports.append((so_far.events, so_far.more))
        )
    assert (swept.events, reports) == (5, [(2, True), (4, True), (5, False)])
