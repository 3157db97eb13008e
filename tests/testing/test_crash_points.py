"""The points at which a process is killed, and that nothing of it runs afterwards."""

import inspect
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from ocean import Clog, Done, Ok, Outcome, RetryPolicy, Tick
from ocean.testing import World, crash_everywhere
from ocean.testing.crash_points import CALLED_AGAIN
from ocean.testing.crashable import AFTER_COMMIT, BEFORE_COMMIT, TOOLS
from tests.testing.shops import (
    CHARGE,
    Renewed,
    charges_in_a_step,
    charges_outside_of_a_step,
    clog_of,
    one_run,
    paying,
    report_of,
    whats,
)

pytestmark = pytest.mark.anyio


async def test_a_correct_clog_gives_the_same_result_after_a_crash_at_every_point() -> None:
    report = await crash_everywhere([clog_of(charges_in_a_step)], one_run, outside=paying)
    assert whats(report) == [
        "before tick.read",
        "before tick.step",
        "before tick.fetch",
        f"after {CHARGE} had arrived, before its answer was received",
        "after the function of step 'c/charge' had ended, before its result was stored",
        "after tick.step, before the handler continued",
        "before tick.emit",
        "before tick.write",
        BEFORE_COMMIT,
        CALLED_AGAIN,
        AFTER_COMMIT,
    ]
    assert (report.findings, report.left_out) == ((), ())
    assert str(report) == "the result is the same after a crash at each of 11 points"


async def test_a_killed_call_does_nothing_more_until_the_results_are_read() -> None:
    log: list[str] = []
    seen: list[list[str]] = []

    async def cleans_up(tick: Tick) -> Outcome:
        log.append(f"enter {tick.call_number}")
        try:
            await tick.emit("said")
        finally:
            log.append(f"leave {tick.call_number}")
        return Done()

    async def look(w: World) -> None:
        seen.append([*log])

    async def scenario(w: World) -> None:
        log.clear()
        await one_run(w)

    report = await crash_everywhere([clog_of(cleans_up)], scenario, check=look)
    assert whats(report) == ["before tick.emit", BEFORE_COMMIT, CALLED_AGAIN, AFTER_COMMIT]
    whole, killed = ["enter 1", "leave 1"], ["enter 1", "enter 2", "leave 2"]
    twice = ["enter 1", "leave 1", "enter 2", "leave 2"]
    assert seen == [whole, whole, killed, twice, twice, whole]


async def test_after_a_crash_it_is_another_attempt_and_after_being_given_back_it_is_not() -> None:
    calls: list[tuple[int, int]] = []

    async def counts(tick: Tick) -> Outcome:
        calls.append((tick.call_number, tick.attempt))
        return Done()

    report = await crash_everywhere([clog_of(counts)], one_run)
    assert whats(report) == [BEFORE_COMMIT, CALLED_AGAIN, AFTER_COMMIT]
    assert calls == [(1, 0), (1, 0), (1, 0), (2, 1), (1, 0), (2, 0), (1, 0)]


def test_every_tool_of_a_tick_is_a_crash_point() -> None:
    tools = {name for name, each in inspect.getmembers(Tick, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert tools == set(TOOLS)


async def somebody_elses() -> None:
    await lowlevel.checkpoint()


async def test_a_wait_in_a_clog_is_a_crash_point_in_the_handler_in_a_step_and_in_a_method() -> None:
    async def waits(tick: Tick) -> Outcome:
        await somebody_elses()
        await tick.step("look", look)
        return Done(await tick.call("c", "ask"))

    async def look(key: str) -> int:
        await lowlevel.checkpoint()
        return 1

    async def ask(tick: Tick, payload: Any) -> int:
        await lowlevel.checkpoint()
        await tick.emit("asked")
        return 2

    clog = clog_of(waits)
    clog.method(ask)
    report = await crash_everywhere([clog], one_run)
    places = [(point.what, point.place.function) for point in report.killed if point.place]
    assert places == [
        ("while it waited", "somebody_elses"),
        ("before tick.step", "waits"),
        ("while it waited", "look"),
        ("after the function of step 'c/look' had ended, before its result was stored", "waits"),
        ("after tick.step, before the handler continued", "waits"),
        ("before tick.call", "waits"),
        ("while it waited", "ask"),
        ("before tick.emit", "ask"),
    ]


async def test_a_line_in_a_loop_is_one_crash_point_per_iteration() -> None:
    async def loops(tick: Tick) -> Outcome:
        for number in range(3):
            await tick.emit("said", number)
        return Done()

    report = await crash_everywhere([clog_of(loops)], one_run)
    assert [point.nth for point in report.killed if point.what == "before tick.emit"] == [1, 2, 3]
    assert "before tick.emit (time 3), in tick 1 of c " in str(report.killed[2])


async def test_a_plain_handler_is_killed_at_its_tools_and_its_mistake_is_found() -> None:
    outside = Renewed()

    def charges(tick: Tick) -> Outcome:
        tick.block(tick.read(run=True))
        tick.block(outside.now.call("charge"))
        tick.block(tick.write(run=1))
        return Done()

    report = await report_of([clog_of(charges)], outside=outside)
    assert whats(report) == [
        "before tick.read",
        "before the outside call 'charge'",
        "after the outside call 'charge' had its effect, before its answer was received",
        "before tick.write",
        BEFORE_COMMIT,
        CALLED_AGAIN,
        AFTER_COMMIT,
    ]
    assert {point.place for point in report.killed} == {None}
    assert len(report.findings) == 4


async def test_tasks_that_a_killed_handler_had_started_stop_with_it() -> None:
    outside = Renewed()

    async def works_in_two_tasks(tick: Tick) -> Outcome:
        turn = anyio.Event()

        async def second() -> None:
            await turn.wait()
            await outside.now.call("second", key=f"{tick.run_id}-{tick.call_number}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            await lowlevel.checkpoint()
            turn.set()
            await tick.emit("first")
        return Done()

    report = await report_of([clog_of(works_in_two_tasks)], outside=outside)
    found = {finding.point.what for finding in report.findings}
    assert "before tick.emit" in whats(report)
    assert "before tick.emit" not in found, "the other task continued after the process had died"
    assert "after the outside call 'second' had its effect, before its answer was received" in found


async def cancelled_at_rest(w: World) -> None:
    run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
    await w.drain()
    await w.ocean.cancel_run(run.run_id)
    await w.drain()


def ending_with(end: Any) -> Clog:
    async def rests(tick: Tick) -> Outcome:
        return Ok()

    clog = clog_of(rests)
    clog.on_end(end)
    return clog


@pytest.mark.parametrize("options", [{}, {"kill_on_end": False}], ids=str)
async def test_a_last_tick_is_killed_and_called_again_unless_that_is_switched_off(options: dict[str, Any]) -> None:
    async def cleans_up(tick: Tick) -> Outcome:
        await tick.emit("cleaned", tick.reason)
        return Ok()

    report = await crash_everywhere([ending_with(cleans_up)], cancelled_at_rest, **options)
    killed = [point.what for point in report.killed if point.tick == 2]
    assert killed == ([] if options else ["before tick.emit", BEFORE_COMMIT]) + [CALLED_AGAIN, AFTER_COMMIT]


async def test_a_last_tick_whose_effect_happens_twice_is_found() -> None:
    report = await report_of([ending_with(charges_outside_of_a_step)], cancelled_at_rest, outside=paying)
    assert {finding.point.tick for finding in report.findings} == {2}
    assert BEFORE_COMMIT in [finding.point.what for finding in report.findings]


async def test_a_handler_that_exceeds_its_time_limit_is_stopped_as_usual() -> None:
    async def hangs_once(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            await anyio.Event().wait()
        return Done(tick.call_number)

    async def scenario(w: World) -> None:
        await w.ocean.create_run(session_id="s", clog_id="c", input={})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            while not w.ocean.at_work:
                await lowlevel.checkpoint()
            w.clock.advance(5_000)
        await w.wait(5_000)

    report = await report_of([clog_of(hangs_once, tick_ms=5_000)], scenario)
    assert whats(report)[0] == "while it waited"


@pytest.mark.parametrize("is_per_process", [True, False])
async def test_a_lock_that_a_killed_call_still_holds_ends_the_test_with_an_error(
    is_per_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ocean.testing.crashable.PATIENCE_SECONDS", 0.2)
    of_the_module = anyio.Lock()

    def make() -> list[Clog]:
        lock = anyio.Lock() if is_per_process else of_the_module

        async def works_alone(tick: Tick) -> Outcome:
            async with lock:
                await tick.emit("alone")
            return Done()

        return [clog_of(works_alone)]

    async def scenario(w: World) -> None:
        await w.ocean.create_run(session_id="s", clog_id="c", input={}, retry=RetryPolicy(max_attempts=2))
        await w.wait(60_000)

    report = await report_of(make, scenario)
    killed = [finding.point.what for finding in report.findings]
    assert killed == ([] if is_per_process else ["while it waited", "before tick.emit"])
    assert is_per_process or "a function that makes it together with the clogs" in str(report)
