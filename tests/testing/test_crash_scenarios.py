"""Scenarios of `crash_everywhere`, which must do the same each time."""

from typing import Any

import pytest

from ocean import Clog, Continue, Done, Failed, Ok, Outcome, Retry, Tick, Wait
from ocean.testing import World, crash_everywhere
from ocean.testing.crashable import BEFORE_COMMIT
from tests.testing.shops import (
    CHARGE,
    charges_in_a_step,
    charges_outside_of_a_step,
    clog_of,
    make_rememberer,
    one_run,
    paying,
    report_of,
    two_inputs,
    whats,
)

pytestmark = pytest.mark.anyio


async def test_a_scenario_that_differs_when_repeated_is_refused_with_the_difference() -> None:
    with pytest.raises(
        AssertionError, match=r"two executions without a crash.*\n.*output: first \['first', 'last'\], then"
    ):
        await crash_everywhere(make_rememberer()[:], two_inputs)


async def test_the_same_scenario_makes_the_same_report_word_for_word() -> None:
    first, second = [await report_of([clog_of(charges_outside_of_a_step)], outside=paying) for _ in range(2)]
    assert first == second
    assert str(first) == str(second)


async def test_points_beyond_the_limit_are_left_out_evenly_and_reported() -> None:
    report = await report_of([clog_of(charges_in_a_step)], outside=paying, most_points=4)
    assert (len(report.killed), len(report.left_out)) == (4, 7)
    assert str(report) == "the result is the same after a crash at each of 4 points (7 left out)"
    assert whats(report)[0] == "before tick.read", "they are spread over the whole scenario"
    assert whats(report)[-1] == BEFORE_COMMIT


async def test_children_timers_signals_and_retries_survive_every_crash() -> None:
    parent, child = Clog("parent"), Clog("child")

    @parent.on_advance
    async def lead(tick: Tick) -> Outcome:
        match tick.reason:
            case "created":
                for name in ("a", "b"):
                    await tick.create_run(clog_id="child", input=name, notify_parent=True)
                await tick.set_timer("late", after_ms=10_000)
                return Ok()
            case "child" if tick.child is not None:
                ended = ((await tick.read(run=True)).run or []) + [tick.child.output]
                await tick.write(run=sorted(ended))
                await tick.set_attributes(ended=len(ended))
                return Ok()
            case "timer":
                return Done((await tick.read(run=True)).run)
        return Failed("unexpected")

    @child.on_advance
    async def follow(tick: Tick) -> Outcome:
        if tick.reason == "created":
            return Wait(for_ms=1_000)
        if tick.reason == "wake" and tick.attempt == 0 and tick.call_number == 1:
            return Retry("not yet")
        return Done(tick.number) if tick.reason == "continue" else Continue()

    async def scenario(w: World) -> Any:
        run = await w.ocean.create_run(session_id="s", clog_id="parent", input={})
        await w.wait(60_000)
        return await w.ocean.result(run.run_id)

    report = await report_of([parent, child], scenario)
    assert {(point.clog_id, point.tick) for point in report.killed} == {
        *(("parent", tick) for tick in (1, 2, 3, 4)),
        *(("child", tick) for tick in (1, 2, 3)),
    }
    assert 2 in {point.call for point in report.killed}


async def test_a_scenario_that_pokes_tick_by_tick_continues_after_a_crash() -> None:
    async def counts(tick: Tick) -> Outcome:
        n = ((await tick.read(run=True)).run or 0) + 1
        await tick.write(run=n)
        return Done(n) if n == 3 else Continue()

    async def scenario(w: World) -> list[Any]:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
        seen = []
        for _ in range(3):
            await w.ocean.advance(max_ticks=1)
            info = await w.ocean.get_run(run.run_id)
            assert info is not None
            seen.append([info.tick, info.status])
        return seen

    report = await report_of([clog_of(counts)], scenario)
    assert report.findings == ()
    assert len(report.killed) == 3 * 5


async def test_a_request_without_a_defined_answer_is_an_error_of_the_test() -> None:
    with pytest.raises(AssertionError, match=f"no answer is defined for {CHARGE}"):
        await crash_everywhere([clog_of(charges_in_a_step)], one_run)


@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
async def test_crash_everywhere_works_on_postgresql(ground: str) -> None:
    report = await report_of([clog_of(charges_outside_of_a_step)], outside=paying, most_points=3)
    assert [finding.point.what for finding in report.findings] == [
        f"after {CHARGE} had arrived, before its answer was received",
        BEFORE_COMMIT,
    ]
