"""What `crash_everywhere` finds, and its report."""

import inspect

import pytest

from ocean import Clog, Done, Outcome, RetryPolicy, Tick
from ocean.testing import CrashFound, Difference, World, crash_everywhere
from ocean.testing.crash_points import CALLED_AGAIN
from ocean.testing.crashable import AFTER_COMMIT, BEFORE_COMMIT
from tests.testing import shops
from tests.testing.shops import (
    CHARGE,
    Renewed,
    charges_in_a_step,
    charges_outside_of_a_step,
    clog_of,
    make_rememberer,
    one_run,
    paying,
    report_of,
    two_inputs,
)

pytestmark = pytest.mark.anyio


async def test_a_charge_outside_of_a_step_is_found_and_the_report_names_the_await_and_both_values() -> None:
    with pytest.raises(CrashFound) as raised:
        await crash_everywhere([clog_of(charges_outside_of_a_step)], one_run, outside=paying)
    report = raised.value.report
    assert [finding.point.what for finding in report.findings] == [
        f"after {CHARGE} had arrived, before its answer was received",
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
    assert first.point.place.file == shops.__file__
    assert "await tick.fetch" in first.point.place.source
    assert [(each.what, each.expected, each.found) for each in first.differences] == [
        (f"effects of {CHARGE}", [{"amount": 40}], [{"amount": 40}, {"amount": 40}])
    ]
    text = str(raised.value)
    assert text.startswith("a crash changes the result at 5 of 8 points\n\nkilled after POST")
    assert f"shops.py:{line} in charges_outside_of_a_step" in text
    assert '    without a crash: [{"amount": 40}]\n    with it:         [{"amount": 40}, {"amount": 40}]' in text
    assert text.count("without a crash") == 1, "equal findings are reported once"
    assert text.endswith(f"\n    killed {BEFORE_COMMIT}\n    {CALLED_AGAIN}")


async def test_an_effect_that_a_crash_loses_is_found() -> None:
    async def takes_a_second_call_for_a_done_one(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            await outside.now.call("mail", tick.input)
        return Done()

    outside = Renewed()

    report = await report_of([clog_of(takes_a_second_call_for_a_done_one)], outside=outside)
    assert [finding.point.what for finding in report.findings] == ["before the outside call 'mail'"]
    assert [(each.expected, each.found) for each in report.findings[0].differences] == [([{"amount": 40}], None)]


async def test_what_a_clog_keeps_in_memory_is_lost_with_the_process() -> None:
    report = await report_of(make_rememberer, two_inputs)
    unheard = next(finding for finding in report.findings if finding.point.what == AFTER_COMMIT)
    assert [(each.expected, each.found) for each in unheard.differences] == [(["first", "last"], ["last"])]


async def test_a_second_call_by_the_same_process_is_tried_too() -> None:
    outside = Renewed()

    def make() -> list[Clog]:
        begun: set[str] = set()

        async def thinks_that_it_is_done(tick: Tick) -> Outcome:
            if tick.idempotency_key not in begun:
                begun.add(tick.idempotency_key)
                await tick.emit("begun")
            return Done()

        return [clog_of(thinks_that_it_is_done)]

    report = await report_of(make, outside=outside)
    assert [finding.point.what for finding in report.findings] == [CALLED_AGAIN]
    assert [(each.expected, each.found) for each in report.findings[0].differences] == [([["begun", None]], None)]


async def test_a_key_made_of_the_time_is_found_if_a_crash_takes_time() -> None:
    outside = Renewed()

    async def charges(tick: Tick) -> Outcome:
        await outside.now.call("charge", key=f"{tick.run_id}-{tick.now}")
        return Done()

    assert (await report_of([clog_of(charges)], outside=outside)).findings == ()
    report = await report_of([clog_of(charges)], outside=outside, downtime_ms=1)
    assert [finding.point.what for finding in report.findings] == [
        "after the outside call 'charge' had its effect, before its answer was received",
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

    async def says_in_its_first_call(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            await tick.stream("word", "only once")
        await tick.step("think", lambda key: None)
        return Done()

    assert (await report_of([clog_of(says_aloud)])).findings == ()
    assert (await report_of([clog_of(says_in_a_step)])).findings == ()
    report = await report_of([clog_of(says_in_its_first_call)])
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


async def test_a_run_with_one_attempt_does_not_survive_a_crash() -> None:
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


async def test_what_the_scenario_returns_is_compared() -> None:
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


async def test_names_that_may_differ_can_be_ignored() -> None:
    report = await report_of([clog_of(charges_outside_of_a_step)], outside=paying, ignore=["effects of POST *"])
    assert report.findings == ()


async def test_a_difference_in_a_long_list_is_shown_without_the_equal_items() -> None:
    text = str(Difference("events", [1, 2, 3, 4, 5], [1, 2, 9, 4, 5])).splitlines()
    assert text == [
        "events",
        "  without a crash: [after 2 equal and before 2 equal: 3]",
        "  with it:         [after 2 equal and before 2 equal: 9]",
    ]
    assert str(Difference("events", [1, 2, 3, 1], [1, 2, 3, 1, 1])).splitlines()[1:] == [
        "  without a crash: [after 4 equal and before 0 equal: ]",
        "  with it:         [after 4 equal and before 0 equal: 1]",
    ]
    assert str(Difference("events", [1, 2], [2, 1])).splitlines()[0] == "events, the same in another order"
    assert str(Difference("row", None, {"a": "ä"})).splitlines()[1:] == [
        "  without a crash: nothing",
        '  with it:         {"a": "ä"}',
    ]
