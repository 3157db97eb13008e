"""`crash_everywhere`: what is wrong is found and named, what is right is not, and the dead stay dead."""

import asyncio
import inspect
from typing import Any

import anyio
import pytest
from anyio import lowlevel

from ocean import Clog, Continue, Done, Failed, Ok, Outcome, Retry, RetryPolicy, Tick, Wait
from ocean.testing import CrashFound, CrashReport, Difference, Outside, World, crash_everywhere
from ocean.testing.lives import CALLED_AGAIN
from ocean.testing.mortal import BEFORE_COMMIT, TOOLS, UNHEARD
from tests.testing.shops import CHARGE, charges_in_a_step, charges_outside_of_a_step, clog_of, one_run, paying

pytestmark = pytest.mark.anyio


async def report_of(clogs: Any, scenario: Any = one_run, **options: Any) -> CrashReport:
    """What it found; and nothing is left running after it."""
    before = asyncio.all_tasks()
    try:
        report = await crash_everywhere(clogs, scenario, **options)
        assert report.findings == ()
    except CrashFound as found:
        report = found.report
    assert asyncio.all_tasks() - before == set()
    return report


def whats(report: CrashReport) -> list[str]:
    return [point.what for point in report.killed]


async def test_a_clog_that_is_right_gives_the_same_result_after_a_crash_at_every_place() -> None:
    report = await crash_everywhere([clog_of(charges_in_a_step)], one_run, outside=paying)
    assert whats(report) == [
        "before tick.read",
        "before tick.step",
        "before tick.fetch",
        f"after {CHARGE} had arrived, before its answer was heard",
        "after the function of step 'c/charge' had ended, before its result was stored",
        "after tick.step, before the handler went on",
        "before tick.emit",
        "before tick.write",
        BEFORE_COMMIT,
        CALLED_AGAIN,
        UNHEARD,
    ]
    assert (report.findings, report.left_out) == ((), ())
    assert str(report) == "the result is the same after a crash at each of 11 places"


async def test_a_charge_outside_of_a_step_is_found_and_the_report_names_the_await_and_both_values() -> None:
    with pytest.raises(CrashFound) as raised:
        await crash_everywhere([clog_of(charges_outside_of_a_step)], one_run, outside=paying)
    report = raised.value.report
    assert [finding.point.what for finding in report.findings] == [
        f"after {CHARGE} had arrived, before its answer was heard",
        "before tick.emit",
        "before tick.write",
        BEFORE_COMMIT,
        CALLED_AGAIN,
    ]
    first = report.findings[0]
    source, begins = inspect.getsourcelines(charges_outside_of_a_step)
    line = begins + next(number for number, text in enumerate(source) if "tick.fetch" in text)
    assert first.point.place is not None
    assert (first.point.place.line, first.point.place.function) == (line, "charges_outside_of_a_step")
    assert first.point.place.file == __file__.replace("test_crashing", "shops")
    assert "await tick.fetch" in first.point.place.source
    assert [(each.what, each.expected, each.found) for each in first.differences] == [
        (f"effects of {CHARGE}", [{"amount": 40}], [{"amount": 40}, {"amount": 40}])
    ]
    told = str(raised.value)
    assert told.startswith("a crash changes the result at 5 of 8 places\n\nkilled after POST")
    assert f"shops.py:{line} in charges_outside_of_a_step" in told
    assert '    without a crash: [{"amount": 40}]\n    with it:         [{"amount": 40}, {"amount": 40}]' in told
    assert told.count("without a crash") == 1, "what is alike is told once"
    assert told.endswith(f"\n    killed {BEFORE_COMMIT}\n    {CALLED_AGAIN}")


async def test_an_effect_that_a_crash_loses_is_found() -> None:
    async def takes_a_second_call_for_a_done_one(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            await outside.call("mail", tick.input)
        return Done()

    outside = Outside()

    def fresh() -> Outside:
        nonlocal outside
        outside = Outside()
        return outside

    report = await report_of([clog_of(takes_a_second_call_for_a_done_one)], outside=fresh)
    assert [finding.point.what for finding in report.findings] == ["before the outside call 'mail'"]
    assert [(each.expected, each.found) for each in report.findings[0].differences] == [([{"amount": 40}], None)]


async def test_nothing_of_a_killed_call_goes_on_until_everything_was_looked_at() -> None:
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
    assert whats(report) == ["before tick.emit", BEFORE_COMMIT, CALLED_AGAIN, UNHEARD]
    whole, killed = ["enter 1", "leave 1"], ["enter 1", "enter 2", "leave 2"]
    twice = ["enter 1", "leave 1", "enter 2", "leave 2"]
    assert seen == [whole, whole, killed, twice, twice, whole]


async def test_after_a_crash_it_is_another_attempt_and_after_being_given_back_it_is_not() -> None:
    calls: list[tuple[int, int]] = []

    async def counts(tick: Tick) -> Outcome:
        calls.append((tick.call_number, tick.attempt))
        return Done()

    report = await crash_everywhere([clog_of(counts)], one_run)
    assert whats(report) == [BEFORE_COMMIT, CALLED_AGAIN, UNHEARD]
    assert calls == [(1, 0), (1, 0), (1, 0), (2, 1), (1, 0), (2, 0), (1, 0)]


def test_every_tool_of_a_tick_is_a_place() -> None:
    tools = {name for name, each in inspect.getmembers(Tick, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert tools == set(TOOLS)


async def somebody_elses() -> None:
    await lowlevel.checkpoint()


async def test_a_wait_for_something_of_ones_own_is_a_place_in_the_handler_in_a_step_and_in_a_method() -> None:
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
        ("after tick.step, before the handler went on", "waits"),
        ("before tick.call", "waits"),
        ("while it waited", "ask"),
        ("before tick.emit", "ask"),
    ]


async def test_a_place_in_a_loop_is_one_place_for_each_time() -> None:
    async def loops(tick: Tick) -> Outcome:
        for number in range(3):
            await tick.emit("said", number)
        return Done()

    report = await crash_everywhere([clog_of(loops)], one_run)
    assert [point.nth for point in report.killed if point.what == "before tick.emit"] == [1, 2, 3]
    assert "before tick.emit (time 3), in tick 1 of c " in str(report.killed[2])


async def test_a_plain_handler_is_killed_at_its_tools_and_its_mistake_found() -> None:
    outside = Outside()

    def charges(tick: Tick) -> Outcome:
        tick.block(tick.read(run=True))
        tick.block(outside.call("charge"))
        tick.block(tick.write(run=1))
        return Done()

    def fresh() -> Outside:
        nonlocal outside
        outside = Outside()
        return outside

    report = await report_of([clog_of(charges)], outside=fresh)
    assert whats(report) == [
        "before tick.read",
        "before the outside call 'charge'",
        "after the outside call 'charge' had its effect, before its answer was heard",
        "before tick.write",
        BEFORE_COMMIT,
        CALLED_AGAIN,
        UNHEARD,
    ]
    assert {point.place for point in report.killed} == {None}
    assert len(report.findings) == 4


async def test_tasks_that_a_killed_handler_had_started_stand_still_with_it() -> None:
    outside = Outside()

    def fresh() -> Outside:
        nonlocal outside
        outside = Outside()
        return outside

    async def works_in_two_tasks(tick: Tick) -> Outcome:
        turn = anyio.Event()

        async def second() -> None:
            await turn.wait()
            await outside.call("second", key=f"{tick.run_id}-{tick.call_number}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            await lowlevel.checkpoint()
            turn.set()
            await tick.emit("first")
        return Done()

    report = await report_of([clog_of(works_in_two_tasks)], outside=fresh)
    found = {finding.point.what for finding in report.findings}
    assert "before tick.emit" in whats(report)
    assert "before tick.emit" not in found, "the other task went on after the process had died"
    assert "after the outside call 'second' had its effect, before its answer was heard" in found


async def two_inputs(w: World) -> None:
    run = await w.ocean.create_run(session_id="s", clog_id="c", input="first")
    await w.drain()
    await w.ocean.signal(run.run_id, "last")
    await w.drain()


def make_rememberer() -> list[Clog]:
    told: list[Any] = []

    async def remembers(tick: Tick) -> Outcome:
        told.append(tick.input)
        return Done(told) if tick.input == "last" else Ok()

    return [clog_of(remembers)]


async def test_what_a_clog_keeps_in_memory_is_lost_with_the_process() -> None:
    report = await report_of(make_rememberer, two_inputs)
    unheard = next(finding for finding in report.findings if finding.point.what == UNHEARD)
    assert [(each.expected, each.found) for each in unheard.differences] == [(["first", "last"], ["last"])]


async def test_a_scenario_that_is_not_the_same_twice_is_refused_with_what_differs() -> None:
    with pytest.raises(
        AssertionError, match=r"played twice without a crash.*\n.*output: first \['first', 'last'\], then"
    ):
        await crash_everywhere(make_rememberer()[:], two_inputs)


async def test_a_second_call_by_the_same_process_is_tried_too() -> None:
    outside = Outside()

    def fresh() -> Outside:
        nonlocal outside
        outside = Outside()
        return outside

    def make() -> list[Clog]:
        begun: set[str] = set()

        async def thinks_that_it_is_done(tick: Tick) -> Outcome:
            if tick.idempotency_key not in begun:
                begun.add(tick.idempotency_key)
                await tick.emit("begun")
            return Done()

        return [clog_of(thinks_that_it_is_done)]

    report = await report_of(make, outside=fresh)
    assert [finding.point.what for finding in report.findings] == [CALLED_AGAIN]
    assert [(each.expected, each.found) for each in report.findings[0].differences] == [([["begun", None]], None)]


async def test_the_same_scenario_makes_the_same_report_word_for_word() -> None:
    first, second = [await report_of([clog_of(charges_outside_of_a_step)], outside=paying) for _ in range(2)]
    assert first == second
    assert str(first) == str(second)


async def test_more_places_than_asked_for_are_thinned_out_and_the_report_says_so() -> None:
    report = await report_of([clog_of(charges_in_a_step)], outside=paying, most_points=4)
    assert (len(report.killed), len(report.left_out)) == (4, 7)
    assert str(report) == "the result is the same after a crash at each of 4 places (7 left out)"
    assert whats(report)[0] == "before tick.read", "they are spread over the whole scenario"
    assert whats(report)[-1] == BEFORE_COMMIT


async def test_names_that_may_differ_can_be_ignored() -> None:
    report = await report_of([clog_of(charges_outside_of_a_step)], outside=paying, ignore=["effects of POST *"])
    assert report.findings == ()


async def test_an_assertion_that_only_fails_after_a_crash_is_a_finding_and_one_that_always_fails_is_raised() -> None:
    async def charged_once(w: World) -> None:
        assert len(w.outside.effects(CHARGE)) == 1, "charged again"

    async def charged_never(w: World) -> None:
        raise RuntimeError("always")

    report = await report_of([clog_of(charges_outside_of_a_step)], outside=paying, check=charged_once)
    raised = [each.found for each in report.findings[0].differences if each.what.endswith("raised")]
    assert len(raised) == 1
    assert raised[0].startswith("AssertionError: charged again")
    with pytest.raises(RuntimeError, match="always"):
        await crash_everywhere([clog_of(charges_in_a_step)], one_run, outside=paying, check=charged_never)


async def test_what_the_scenario_answers_is_compared() -> None:
    calls = 0

    async def counts(tick: Tick) -> Outcome:
        nonlocal calls
        calls += 1
        return Done()

    async def scenario(w: World) -> int:
        nonlocal calls
        calls = 0
        await one_run(w)
        return calls

    report = await report_of([clog_of(counts)], scenario)
    assert {finding.point.what: finding.differences[0].found for finding in report.findings} == {
        BEFORE_COMMIT: 2,
        CALLED_AGAIN: 2,
    }


async def test_a_key_made_of_the_time_is_found_if_a_crash_takes_time() -> None:
    outside = Outside()

    def fresh() -> Outside:
        nonlocal outside
        outside = Outside()
        return outside

    async def charges(tick: Tick) -> Outcome:
        await outside.call("charge", key=f"{tick.run_id}-{tick.now}")
        return Done()

    assert (await report_of([clog_of(charges)], outside=fresh)).findings == ()
    report = await report_of([clog_of(charges)], outside=fresh, downtime_ms=1)
    assert [finding.point.what for finding in report.findings] == [
        "after the outside call 'charge' had its effect, before its answer was heard",
        BEFORE_COMMIT,
    ]


async def test_streamed_events_count_as_a_reader_keeps_them() -> None:
    async def says_aloud(tick: Tick) -> Outcome:
        for word in ("one", "two"):
            await tick.stream("word", word)
        return Done()

    async def says_in_a_step(tick: Tick) -> Outcome:
        await tick.step("say", lambda key: tick.stream("word", "only once"))
        return Done()

    assert (await report_of([clog_of(says_aloud)])).findings == ()
    report = await report_of([clog_of(says_in_a_step)])
    first = next(each for each in report.findings if each.point.what.startswith("after tick.step"))
    assert [(each.expected, each.found) for each in first.differences] == [([["word", "only once"]], None)]


async def test_rows_of_every_scope_are_compared() -> None:
    async def writes_how_often_it_was_called(tick: Tick) -> Outcome:
        await tick.read(run=True, session=True, global_=True, tick=["a"])
        n = tick.call_number
        await tick.write(run=n, session=n, global_=n, tick={"a": n})
        return Done()

    report = await report_of([clog_of(writes_how_often_it_was_called)])
    names = [each.what for each in report.findings[0].differences]
    run = "run 00000000-0000-7000-8000-000000000001 of c"
    assert names == ["global row of c", f"{run}: row 'a' of c in tick 1", f"{run}: row of c", "session row of c in s"]


async def test_a_difference_in_a_long_list_is_shown_without_what_is_alike() -> None:
    told = str(Difference("events", [1, 2, 3, 4, 5], [1, 2, 9, 4, 5])).splitlines()
    assert told == [
        "events",
        "  without a crash: [after 2 alike and before 2 alike: 3]",
        "  with it:         [after 2 alike and before 2 alike: 9]",
    ]
    assert str(Difference("events", [1, 2, 3, 1], [1, 2, 3, 1, 1])).splitlines()[1:] == [
        "  without a crash: [after 4 alike and before 0 alike: ]",
        "  with it:         [after 4 alike and before 0 alike: 1]",
    ]
    assert str(Difference("events", [1, 2], [2, 1])).splitlines()[0] == "events, the same in another order"
    assert str(Difference("row", None, {"a": "ä"})).splitlines()[1:] == [
        "  without a crash: nothing",
        '  with it:         {"a": "ä"}',
    ]


async def test_children_timers_signals_and_retries_stand_every_crash() -> None:
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


async def test_a_run_with_one_attempt_does_not_stand_a_crash() -> None:
    async def does_nothing(tick: Tick) -> Outcome:
        return Done()

    async def scenario(w: World) -> None:
        policy = RetryPolicy(max_attempts=1)
        await w.ocean.create_run(session_id="s", clog_id="c", input={}, retry=policy)
        await w.drain()

    report = await report_of([clog_of(does_nothing)], scenario)
    assert [finding.point.what for finding in report.findings] == [BEFORE_COMMIT]
    status = report.findings[0].differences[-1]
    assert (status.expected, status.found) == ("done", "failed")


async def test_a_scenario_that_pokes_tick_by_tick_goes_on_after_a_crash() -> None:
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


async def test_what_nobody_answers_is_an_error_of_the_test() -> None:
    with pytest.raises(AssertionError, match=f"nobody answers {CHARGE}"):
        await crash_everywhere([clog_of(charges_in_a_step)], one_run)


async def test_a_handler_that_overruns_its_time_is_stopped_as_ever() -> None:
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
async def test_a_lock_that_the_killed_call_still_holds_stops_no_test_for_ever(
    is_per_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ocean.testing.mortal.PATIENCE_SECONDS", 0.2)
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


@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
async def test_it_works_on_postgresql_as_well(ground: str) -> None:
    report = await report_of([clog_of(charges_outside_of_a_step)], outside=paying, most_points=3)
    assert [finding.point.what for finding in report.findings] == [
        f"after {CHARGE} had arrived, before its answer was heard",
        BEFORE_COMMIT,
    ]


@pytest.mark.parametrize("kill_on_end", [False, True])
async def test_a_last_tick_is_killed_only_if_asked_for_since_it_is_called_once(kill_on_end: bool) -> None:
    async def rests(tick: Tick) -> Outcome:
        return Ok()

    async def cleans_up(tick: Tick) -> Outcome:
        await tick.emit("cleaned", tick.reason)
        return Ok()

    async def scenario(w: World) -> None:
        run = await w.ocean.create_run(session_id="s", clog_id="c", input={})
        await w.drain()
        await w.ocean.cancel_run(run.run_id)
        await w.drain()

    clog = clog_of(rests)
    clog.on_end(cleans_up)
    report = await report_of([clog], scenario, kill_on_end=kill_on_end)
    killed = [point.what for point in report.killed if point.tick == 2]
    assert killed == (["before tick.emit", BEFORE_COMMIT] if kill_on_end else []) + [CALLED_AGAIN, UNHEARD]
    assert [finding.point.what for finding in report.findings] == killed[:-2]
