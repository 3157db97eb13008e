"""Each intended time fires once, whatever processes poke, die or sleep, and however the clock is set."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest

from clogs.schedule import schedule
from ocean import RunStatus
from ocean.testing import World, crash_everywhere
from tests.clogs.schedule.kit import CLOGS, HOUR, HOURLY, add, emitted, fired, hours, job, look

pytestmark = pytest.mark.anyio


async def test_a_schedule_is_a_run_whose_timer_is_its_next_time() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, name="hourly")
        run = await look(w, run_id)
        assert (run.status, run.wake_at) == (RunStatus.WAITING, begin + HOUR)
        assert run.attributes == {
            "name": "hourly",
            "plan": "0 * * * * UTC",
            "target": "job",
            "next_at": begin + HOUR,
            "fired": 0,
        }
        w.clock.advance(HOUR - 1)
        assert await w.drain() == []
        w.clock.advance(1)
        await w.drain()
        (made,) = (await w.ocean.list_runs(clog_id="job")).runs
        assert made.output == {"schedule_id": run_id, "intended_at": begin + HOUR, "previous_at": None}
        assert (made.session_id, made.attributes) == ("s", {"schedule": "hourly", "intended_at": begin + HOUR})
        assert (await look(w, run_id)).attributes["fired"] == 1
        assert await emitted(w, run_id, "schedule.fired") == [
            {"intended_at": begin + HOUR, "run_id": made.run_id, "by_hand": False}
        ]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"missed": "skip"}, []),
        ({"missed": "skip", "grace_ms": HOUR}, [3]),
        ({"missed": "once"}, [3]),
        ({"missed": "all"}, [1, 2, 3]),
        ({"missed": "all", "catch_up": 2}, [2, 3]),
    ],
    ids=str,
)
async def test_three_times_that_no_process_poked_for_follow_the_policy(
    policy: dict[str, Any], expected: list[int]
) -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, **policy)
        w.clock.advance(3 * HOUR + HOUR // 2)
        await w.drain()
        assert await fired(w, run_id, begin) == expected
        skipped = await emitted(w, run_id, "schedule.skipped")
        assert [(each["reason"], each["count"]) for each in skipped] == (
            [("missed", 3 - len(expected))] if len(expected) < 3 else []
        )
        await w.wait(HOUR)
        assert await fired(w, run_id, begin) == [*expected, 4]


async def test_times_count_from_when_it_was_added_and_not_from_the_first_poke() -> None:
    async with hours() as w:
        begin = w.clock.now()
        made = await w.ocean.call_clog(
            clog_id="schedule", session_id="s", method="add", payload=HOURLY | {"missed": "all"}
        )
        w.clock.advance(3 * HOUR)
        await w.drain()
        assert await fired(w, made["run_id"], begin) == [1, 2, 3]


async def test_each_run_gets_the_previous_time() -> None:
    async with hours() as w:
        begin = w.clock.now()
        await add(w, missed="all")
        w.clock.advance(3 * HOUR)
        await w.drain()
        outputs = [run.output for run in (await w.ocean.list_runs(clog_id="job")).runs]
        assert {each["intended_at"]: each["previous_at"] for each in outputs} == {
            begin + HOUR: None,
            begin + 2 * HOUR: begin + HOUR,
            begin + 3 * HOUR: begin + 2 * HOUR,
        }


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("once", [3]), ("all", [1, 2, 3])])
async def test_a_pause_over_times_is_as_if_no_process_had_poked(missed: str, expected: list[int]) -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, missed=missed)
        await w.ocean.pause_run(run_id)
        await w.wait(3 * HOUR + HOUR // 2)
        assert await fired(w, run_id, begin) == []
        await w.ocean.resume_run(run_id)
        await w.drain()
        assert await fired(w, run_id, begin) == expected
        assert (await look(w, run_id)).wake_at == begin + 4 * HOUR


async def test_two_instances_that_poke_at_once_fire_once() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w)
        other = await w.instance(CLOGS)
        for _ in range(3):
            w.clock.advance(HOUR)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(w.drain)
                tasks.start_soon(w.drain, other)
        assert await fired(w, run_id, begin) == [1, 2, 3]


async def test_a_clock_that_is_set_back_fires_nothing_again() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w)
        await w.wait(2 * HOUR)
        w.clock.jump(-2 * HOUR)
        shown = await w.ocean.call_clog(run_id=run_id, method="upcoming", payload={"n": 1})
        assert shown[0]["at"] == begin + 3 * HOUR
        await w.wait(2 * HOUR)
        assert await fired(w, run_id, begin) == [1, 2]
        await w.wait(HOUR)
        assert await fired(w, run_id, begin) == [1, 2, 3]


async def test_a_clock_that_jumps_ahead_is_as_if_no_process_had_poked() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w)
        w.clock.jump(100 * HOUR)
        await w.drain()
        w.clock.jump(-100 * HOUR)
        await w.wait(2 * HOUR)
        assert await fired(w, run_id, begin) == [100]
        assert (await look(w, run_id)).wake_at == begin + 101 * HOUR


@pytest.mark.parametrize(
    ("bounds", "reason", "expected"),
    [
        ({"end_at": 3}, "no_more_times", [1, 2]),
        ({"start_at": 2, "end_at": 4}, "no_more_times", [2, 3]),
        ({"limit": 2}, "limit", [1, 2]),
        ({"limit": 2, "missed": "all"}, "limit", [1, 2]),
    ],
    ids=str,
)
async def test_a_schedule_ends_with_its_last_time(bounds: dict[str, Any], reason: str, expected: list[int]) -> None:
    async with hours() as w:
        begin = w.clock.now()
        options = {name: begin + at * HOUR if name.endswith("_at") else at for name, at in bounds.items()}
        run_id = await add(w, name="short", **options)
        if "missed" in bounds:
            w.clock.advance(4 * HOUR)
        await w.wait(5 * HOUR)
        run = await look(w, run_id)
        assert (run.status, run.output["reason"], run.output["fired"]) == (RunStatus.DONE, reason, len(expected))
        assert await fired(w, run_id, begin) == expected
        assert await add(w, name="short", every_ms=HOUR, cron=None) != run_id


async def test_an_interval_keeps_its_times_after_a_long_absence() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, cron=None, every_ms=HOUR, anchor_at=begin + HOUR // 4)
        w.clock.advance(10 * HOUR)
        await w.drain()
        (only,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert only.attributes["intended_at"] == begin + 9 * HOUR + HOUR // 4
        assert (await look(w, run_id)).wake_at == begin + 10 * HOUR + HOUR // 4


@pytest.mark.parametrize(
    ("start", "cron", "expected"),
    [
        ("2026-03-06T12:00", "30 2 * * *", ["07 02:30 EST", "08 03:00 EDT", "09 02:30 EDT"]),
        ("2026-10-30T12:00", "30 1 * * *", ["31 01:30 EDT", "01 01:30 EDT", "02 01:30 EST"]),
        ("2026-11-01T00:10", "0 * * * *", ["01 01:00 EDT", "01 01:00 EST", "01 02:00 EST"]),
    ],
)
async def test_it_fires_through_the_nights_on_which_clocks_change(start: str, cron: str, expected: list[str]) -> None:
    zone = ZoneInfo("America/New_York")
    begin = int(datetime.fromisoformat(start).replace(tzinfo=zone).timestamp()) * 1_000
    async with hours() as w:
        w.clock.advance(begin - w.clock.now())
        run_id = await add(w, cron=cron, zone=zone.key, limit=3)
        for _ in range(6):
            await w.wait(12 * HOUR)
        events = await w.ocean.read_events(run_id, types=["schedule.fired"])
        times = [datetime.fromtimestamp(event.payload["intended_at"] / 1_000, zone) for event in events]
        assert [f"{time:%d %H:%M %Z}" for time in times] == expected
        assert [event.ts for event in events] == [event.payload["intended_at"] for event in events]


async def two_hours(w: World) -> Any:
    made = await w.ocean.call_clog(clog_id="schedule", session_id="s", method="add", payload=HOURLY | {"missed": "all"})
    await w.drain()
    w.clock.advance(2 * HOUR)
    await w.drain()
    return len((await w.ocean.list_runs(parent_run_id=made["run_id"])).runs)


@pytest.mark.sqlite
async def test_a_crash_at_any_place_neither_loses_nor_doubles_a_time() -> None:
    report = await crash_everywhere([schedule, job], two_hours)
    assert {point.tick for point in report.killed} == {1, 2}


async def test_a_run_that_has_the_key_of_a_time_already_is_not_made_again() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w)
        await w.ocean.create_run(
            session_id="s", clog_id="job", input="another", dedupe_key=f"schedule/{run_id}/{begin + HOUR}"
        )
        await w.wait(2 * HOUR)
        assert await fired(w, run_id, begin) == [2]
        assert [each["reason"] for each in await emitted(w, run_id, "schedule.skipped")] == ["key_taken"]
