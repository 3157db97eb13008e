"""Runs that overlap, options of what is created, and schedules that signal a run."""

import pytest

from ocean import RunStatus
from tests.clogs.schedule.kit import HOUR, add, emitted, fired, hours, look

pytestmark = pytest.mark.anyio

SLOW = {"clog_id": "slow"}


async def test_allow_starts_a_run_although_the_last_has_not_ended() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, target=SLOW)
        await w.wait(3 * HOUR)
        assert await fired(w, run_id, begin) == [1, 2, 3]


async def test_skip_drops_a_time_while_a_run_has_not_ended() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, target=SLOW, overlap="skip")
        await w.wait(3 * HOUR)
        assert await fired(w, run_id, begin) == [1]
        skipped = await emitted(w, run_id, "schedule.skipped")
        assert [(each["reason"], each["until"]) for each in skipped] == [
            ("overlap", begin + 2 * HOUR),
            ("overlap", begin + 3 * HOUR),
        ]
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        await w.ocean.signal(child.run_id)
        await w.wait(HOUR)
        assert await fired(w, run_id, begin) == [1, 4]


async def test_queue_starts_one_when_the_last_has_ended_and_ends_when_all_have() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, target=SLOW, overlap="queue", limit=3)
        await w.wait(3 * HOUR)
        assert await fired(w, run_id, begin) == [1]
        assert (await look(w, run_id)).status is RunStatus.IDLE
        for n in (2, 3):
            (child,) = (await w.ocean.list_runs(parent_run_id=run_id, status="idle")).runs
            await w.ocean.signal(child.run_id)
            await w.drain()
            assert await fired(w, run_id, begin) == list(range(1, n + 1))
        assert (await look(w, run_id)).output["reason"] == "limit"


async def test_a_tick_under_a_clock_that_was_set_back_repeats_no_time() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, target=SLOW, overlap="skip")
        await w.wait(2 * HOUR)
        w.clock.jump(-2 * HOUR)
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        await w.ocean.signal(child.run_id)
        await w.wait(2 * HOUR)
        assert await fired(w, run_id, begin) == [1]
        assert (await look(w, run_id)).wake_at == begin + 3 * HOUR


async def test_a_run_that_fails_or_is_cancelled_counts_as_ended() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, target=SLOW, overlap="queue")
        await w.wait(2 * HOUR)
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        await w.ocean.cancel_run(child.run_id)
        await w.drain()
        assert await fired(w, run_id, begin) == [1, 2]


async def test_created_runs_have_the_options_of_the_target() -> None:
    async with hours() as w:
        target = {**SLOW, "priority": 2, "attributes": {"team": "red"}, "max_attempts": 7, "deadline_ms": 5_000}
        run_id = await add(w, target=target)
        await w.wait(HOUR)
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert (child.priority, child.max_attempts, child.deadline_at) == (2, 7, w.clock.now() + 5_000)
        assert child.attributes["team"] == "red"


async def test_a_schedule_signals_a_run_once_for_each_time_and_ends_with_it() -> None:
    async with hours() as w:
        begin = w.clock.now()
        await w.ocean.create_run(session_id="s", clog_id="slow", run_id="target")
        run_id = await add(w, target={"run_id": "target", "input": {"do": "it"}, "times_as": "when"})
        await w.wait(HOUR)
        (first,) = await w.ocean.list_inputs("target")
        assert first.signal_id == f"schedule/{run_id}/{begin + HOUR}"
        assert first.body["when"]["intended_at"] == begin + HOUR
        assert (await look(w, "target")).status is RunStatus.DONE
        await w.wait(HOUR)
        run = await look(w, run_id)
        assert (run.status, run.output["reason"], run.output["fired"]) == (RunStatus.DONE, "target_ended", 1)


async def test_a_target_deleted_and_created_again_in_another_session_is_not_signalled() -> None:
    async with hours() as w:
        await w.ocean.create_run(session_id="s", clog_id="slow", run_id="target")
        run_id = await add(w, target={"run_id": "target"})
        await w.ocean.delete_run("target")
        await w.ocean.create_run(session_id="another's", clog_id="slow", run_id="target")
        await w.wait(HOUR)
        assert await w.ocean.list_inputs("target") == []
        assert (await look(w, run_id)).output["reason"] == "target_ended"


async def test_a_run_of_another_session_cannot_be_a_target() -> None:
    async with hours() as w:
        await w.ocean.create_run(session_id="another's", clog_id="slow", run_id="target")
        with pytest.raises(Exception, match="there is no run 'target' in this session"):
            await add(w, target={"run_id": "target"})
