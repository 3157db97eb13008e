"""`advance(dry_run=True)`: what the next call would do, without a change of any table, and where it stops."""

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import (
    Clog,
    Done,
    DryRun,
    DryStop,
    ErrorInfo,
    InvalidValue,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    RunNotFound,
    Tick,
    Wait,
)
from ocean.state.records import Ending
from ocean.testing import World
from tests.lifecycle.acting import LOCK_MS, Act, Script, die_holding, dump, look, stage, start, start_idle
from tests.races.arranging import units_written

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]


async def rehearse(w: World, run_id: str, **more: Any) -> DryRun:
    """Do a dry run and check that it changed no table and opened no write transaction."""
    before, written = await dump(w), units_written(w)
    result = await w.ocean.advance(dry_run=True, run_id=run_id, **more)
    assert units_written(w) == written
    assert await dump(w) == before
    assert (result.outcomes, result.advanced) == ((), 0)
    assert result.dry_run is not None
    return result.dry_run


def forbidden(key: str) -> str:
    raise AssertionError("a dry run takes no step")


def must_not_be(tick: Tick) -> Any:
    raise AssertionError("nothing was to be called")


async def test_it_shows_the_inputs_of_the_call() -> None:
    script = Script(Done({"n": 1}))
    async with stage(script) as w:
        run_id = await start(w, {"a": 1}, priority=3)
        await w.ocean.signal(run_id, "behind")
        shown = await rehearse(w, run_id)
        assert (shown.run_id, shown.tick, shown.call, shown.attempt, shown.reason) == (run_id, 1, 1, 0, "created")
        assert [each.body for each in shown.inputs] == [{"a": 1}]
        assert (shown.outcome, shown.stopped_at, shown.holds, shown.end) == (Done({"n": 1}), None, (), None)
        await w.drain()
        assert script.seen[0] == script.seen[1]


async def test_the_run_looks_to_the_handler_as_in_a_real_call() -> None:
    looks: list[Any] = []

    async def look_around(tick: Tick) -> Outcome:
        looks.append((tick.run, tick.now, tick.deadline, tick.idempotency_key, tick.caller))
        return Done()

    async with stage(Script(look_around)) as w:
        run_id = await start_idle(w)
        await w.ocean.signal(run_id, actor="ada")
        await rehearse(w, run_id)
        await w.drain()
        assert looks[0] == looks[1]


async def test_it_reports_the_next_wake_time_like_any_poke() -> None:
    async with stage(Script()) as w:
        first, _ = await start(w), await start(w)
        result = await w.ocean.advance(dry_run=True, run_id=first)
        assert (result.due_now, result.next_wake_at, result.unclaimable) == (2, w.clock.now(), 0)


async def test_it_works_while_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run={"n": 1})
        await tick.stream("said")
        return Done()

    path = tmp_path / "ocean.db"
    async with stage(Script(act), url=f"sqlite:///{path}") as w:
        run_id = await start(w)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            shown = await rehearse(w, run_id)
        finally:
            other.execute("ROLLBACK")
            other.close()
        assert (shown.outcome, [row.after for row in shown.rows]) == (Done(), [{"n": 1}])


async def test_it_stops_at_the_first_step_that_has_no_result_and_names_it() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run="written")
        await tick.stream("going", 1)
        await tick.emit("asked", 2)
        await tick.step("pay", forbidden)
        return Done()

    async with stage(Script(act)) as w:
        shown = await rehearse(w, await start(w))
        assert (shown.stopped_at, shown.outcome) == (DryStop("step", "pay", "c"), None)
        assert [(event.type, event.is_streamed) for event in shown.events] == [("going", True), ("asked", False)]
        assert [row.after for row in shown.rows] == ["written"]


@pytest.mark.parametrize("scope", ["tick", "run"])
async def test_it_continues_past_steps_that_a_crashed_call_has_stored(scope: Any) -> None:
    got: list[Any] = []

    async def act(tick: Tick) -> Outcome:
        got.append(await tick.step("one", forbidden, scope=scope))
        await tick.step("two", forbidden, scope=scope)
        return Done()

    script = Script(act)
    async with stage(script) as w:
        run_id = await start(w)
        claim = await die_holding(w, script)
        await w.store.store_step(claim.lock, claim.tick if scope == "tick" else 0, "c\x1fone", '"kept"')
        w.clock.advance(LOCK_MS)
        shown = await rehearse(w, run_id)
        assert (shown.tick, shown.call, shown.attempt) == (1, 2, 1)
        assert (got, shown.stopped_at) == (["kept"], DryStop("step", "two", "c"))


async def test_a_tool_that_acts_outside_is_not_used_and_is_named() -> None:
    async def by_method(tick: Tick) -> Outcome:
        await tick.fetch("http://127.0.0.1:9/")
        return Done()

    async def by_name(tick: Tick) -> Outcome:
        await tick.tools.invoke("ocean.http.fetch", {"url": "http://127.0.0.1:9/"})
        return Done()

    for act in (by_method, by_name):
        async with stage(Script(act, tools=["ocean.http.fetch"])) as w:
            shown = await rehearse(w, await start(w))
            assert (shown.stopped_at, shown.outcome) == (DryStop("tool", "ocean.http.fetch", "c"), None)


async def test_a_tool_that_the_clog_does_not_list_is_refused_as_in_a_real_call() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.fetch("http://127.0.0.1:9/")
        return Done()

    async with stage(Script(act)) as w:
        shown = await rehearse(w, await start(w))
        assert isinstance(shown.outcome, Retry)
        assert shown.stopped_at is None


async def swallow_errors(tick: Tick) -> Outcome:
    try:
        await tick.step("pay", forbidden)
    except Exception:
        return Done("swallowed")
    return Done()


async def swallow_everything(tick: Tick) -> Outcome:
    with suppress(BaseException):
        await tick.step("pay", forbidden)
    await tick.emit("never")
    return Done()


async def swallow_and_return(tick: Tick) -> Outcome:
    try:
        await tick.step("pay", forbidden)
    except BaseException:
        return Done("swallowed")
    return Done()


async def gather_results(tick: Tick) -> Outcome:
    await asyncio.gather(tick.step("pay", forbidden), return_exceptions=True)
    return Done("swallowed")


async def in_a_task_group(tick: Tick) -> Outcome:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick.step, "pay", forbidden)
    return Done()


async def stop_then_another(tick: Tick) -> Outcome:
    try:
        await tick.step("pay", forbidden)
    except BaseException:
        await tick.step("another", forbidden)
    return Done()


@pytest.mark.parametrize(
    "act",
    [swallow_errors, swallow_everything, swallow_and_return, gather_results, in_a_task_group, stop_then_another],
    ids=lambda act: act.__name__,
)
async def test_no_handler_can_swallow_the_stop(act: Act) -> None:
    async with stage(Script(act)) as w:
        shown = await rehearse(w, await start(w))
        assert (shown.stopped_at, shown.outcome, shown.events) == (DryStop("step", "pay", "c"), None, ())


async def test_a_handler_that_catches_errors_does_not_even_see_the_stop() -> None:
    caught: list[Exception] = []

    async def act(tick: Tick) -> Outcome:
        try:
            await tick.step("pay", forbidden)
        except Exception as error:
            caught.append(error)
        return Done()

    async with stage(Script(act)) as w:
        await rehearse(w, await start(w))
        assert caught == []


async def test_a_nested_call_is_rehearsed_and_its_stop_names_its_clog() -> None:
    other = Clog("other")

    @other.method
    async def count(tick: Tick, payload: Any) -> int:
        n: int = ((await tick.read(session=True)).session or 0) + 1
        await tick.write(session=n)
        await tick.emit("counted", payload)
        if n == 2:
            await tick.step("announce", forbidden)
        return n

    async def act(tick: Tick) -> Outcome:
        return Done(await tick.call("other", "count", "x"))

    async with stage(Script(act), other) as w:
        first, second = await start(w), await start(w)
        shown = await rehearse(w, first)
        assert shown.outcome == Done(1)
        assert [(event.clog_id, event.payload) for event in shown.events] == [("other", "x")]
        assert [(row.scope, row.clog_id, row.session_id, row.after) for row in shown.rows] == [
            ("session", "other", "s", 1)
        ]
        await w.ocean.advance(run_id=first)
        shown = await rehearse(w, second)
        assert (shown.stopped_at, shown.outcome) == (DryStop("step", "announce", "other"), None)
        assert [row.after for row in shown.rows] == [2]


async def test_plain_functions_are_rehearsed_in_their_thread() -> None:
    plain, swallowing = Clog("plain"), Clog("swallowing")

    @plain.on_advance
    def advance(tick: Tick) -> Outcome:
        tick.block(tick.read(run=True))
        tick.block(tick.write(run=tick.input))
        if tick.input == "step":
            tick.block(tick.step("pay", forbidden))
        return Done()

    @swallowing.on_advance
    def swallow(tick: Tick) -> Outcome:
        try:
            tick.block(tick.step("pay", forbidden))
        except BaseException:
            return Done()
        return Ok()

    async with stage(plain, swallowing) as w:
        shown = await rehearse(w, await start(w, "plain", clog_id="plain"))
        assert (shown.outcome, shown.rows[0].after) == (Done(), "plain")
        shown = await rehearse(w, await start(w, "step", clog_id="plain"))
        assert (shown.outcome, shown.stopped_at) == (None, DryStop("step", "pay", "plain"))
        shown = await rehearse(w, await start(w, clog_id="swallowing"))
        assert (shown.outcome, shown.stopped_at) == (None, DryStop("step", "pay", "swallowing"))


async def test_a_function_is_applied_to_the_row_as_it_is_when_the_call_has_ended() -> None:
    has_read, go_on = anyio.Event(), anyio.Event()
    adder = Clog("adder")

    @adder.method
    async def add(tick: Tick, n: int) -> None:
        await tick.read(session=True)
        await tick.write(session=lambda old: (old or 0) + n)

    @adder.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.read(session=True)
        await tick.write(session=lambda old: (old or 0) + 1)
        has_read.set()
        await go_on.wait()
        return Done()

    async with stage(adder) as w, anyio.create_task_group() as tasks:

        async def add_ten() -> None:
            await has_read.wait()
            await w.ocean.call_clog(clog_id="adder", session_id="s", method="add", payload=10)
            go_on.set()

        tasks.start_soon(add_ten)
        shown = (await w.ocean.advance(dry_run=True, run_id=await start(w, clog_id="adder"))).dry_run
        assert shown is not None
        assert [(row.before, row.after) for row in shown.rows] == [(10, 11)]


async def test_a_rehearsal_holds_no_lock_and_a_real_call_beside_it_commits() -> None:
    is_waiting, go_on = anyio.Event(), anyio.Event()

    async def wait(tick: Tick) -> Outcome:
        is_waiting.set()
        await go_on.wait()
        await tick.stream("late")
        return Done("dry")

    async with stage(Script(wait, Done("real"))) as w, anyio.create_task_group() as tasks:
        run_id = await start(w)
        tables = []

        async def really() -> None:
            await is_waiting.wait()
            assert await w.ocean.result(run_id) == "real"
            tables.append(await dump(w))
            go_on.set()

        tasks.start_soon(really)
        shown = (await w.ocean.advance(dry_run=True, run_id=run_id)).dry_run
        assert [await dump(w)] == tables
        assert shown is not None
        assert (shown.outcome, [event.type for event in shown.events]) == (Done("dry"), ["late"])


async def test_held_runs_show_what_holds_them_and_nothing_is_called() -> None:
    async with stage(Script(must_not_be), Script(Wait(for_ms=5), clog_id="sleepy"), Script(clog_id="gone")) as w:
        idle = await start_idle(w)
        waiting, paused, elsewhere = await start(w, clog_id="sleepy"), await start(w), await start(w)
        await w.ocean.pause_run(paused)
        await w.ocean.advance(run_id=waiting)
        busy = Script(clog_id="gone")
        locked = await start(w, clog_id="gone")
        await die_holding(w, busy)
        for run_id, code in ((idle, "idle"), (waiting, "waiting"), (paused, "paused"), (locked, "locked")):
            shown = await rehearse(w, run_id)
            assert [hold.code for hold in shown.holds] == [code]
            assert shown == DryRun(run_id, holds=(await w.ocean.explain(run_id)).holds)
        other_instance = await w.instance([Script(clog_id="d")])
        result = await other_instance.advance(dry_run=True, run_id=elsewhere)
        assert result.dry_run is not None
        assert [hold.code for hold in result.dry_run.holds] == ["clog_elsewhere"]


async def test_an_ended_run_is_held_permanently() -> None:
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        await w.drain()
        assert [hold.code for hold in (await rehearse(w, run_id)).holds] == ["ended"]


async def test_a_retrying_run_is_shown_the_same_tick_with_the_same_inputs() -> None:
    script = Script(Retry("no"), Done())
    async with stage(script) as w:
        run_id = await start(w, "first")
        await w.drain()
        await w.ocean.signal(run_id, "behind")
        assert [hold.code for hold in (await rehearse(w, run_id)).holds] == ["backing_off"]
        w.clock.advance(1_000)
        shown = await rehearse(w, run_id)
        assert (shown.tick, shown.call, shown.attempt, shown.outcome) == (1, 2, 1, Done())
        assert [each.body for each in shown.inputs] == ["first"]
        await w.drain()
        assert script.seen[1] == script.seen[2]


async def test_the_last_tick_of_an_ending_run_is_rehearsed() -> None:
    async def clean_up(tick: Tick) -> Outcome:
        await tick.emit("released", tick.reason)
        return Ok()

    script = Script(must_not_be, ends=(clean_up,))
    async with stage(script) as w:
        run_id = await start(w)
        await w.ocean.cancel_run(run_id)
        shown = await rehearse(w, run_id)
        assert (shown.reason, shown.outcome, shown.inputs) == ("cancel", Ok(), ())
        assert [event.payload for event in shown.events] == ["cancel"]
        await w.drain()
        assert script.ends[0] == script.ends[1]


async def test_an_overdue_end_is_named_and_nothing_is_called() -> None:
    script = Script(must_not_be, ends=(must_not_be,))
    async with stage(script) as w:
        late = await start(w, deadline_at=w.clock.now() + 5)
        w.clock.advance(5)
        assert await rehearse(w, late) == DryRun(late, end=Ending.DEADLINE)
        assert (await look(w, late)).status == "pending"


async def test_a_run_that_crashed_on_its_last_attempt_has_an_overdue_end() -> None:
    script = Script(must_not_be)
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=1))
        await die_holding(w, script)
        w.clock.advance(LOCK_MS)
        assert (await rehearse(w, run_id)).end == "exhausted"


async def test_a_call_that_overruns_its_time_is_a_failed_attempt_and_keeps_what_it_streamed() -> None:
    shown = await _stopped_by_time(50)
    assert (shown.outcome, shown.stopped_at) == (
        Retry(ErrorInfo("tick_timeout", "the handler took longer than 50 ms")),
        None,
    )
    assert [event.type for event in shown.events] == ["said"]


async def test_the_hard_limit_stops_it_and_is_named() -> None:
    shown = await _stopped_by_time(20, hard_ms=20)
    assert (shown.outcome, shown.stopped_at) == (None, DryStop("limit", "hard_ms", "c"))
    assert [event.type for event in shown.events] == ["said", "asked"]


async def _stopped_by_time(ms: int, **more: Any) -> DryRun:
    is_waiting = anyio.Event()

    async def wait(tick: Tick) -> Outcome:
        await tick.stream("said")
        await tick.emit("asked")
        is_waiting.set()
        await anyio.sleep_forever()
        return Done()

    async with stage(Script(wait, tick_ms=50)) as w, anyio.create_task_group() as tasks:

        async def move_time() -> None:
            await is_waiting.wait()
            w.clock.advance(ms)

        tasks.start_soon(move_time)
        shown = await rehearse(w, await start(w), **more)
    assert is_waiting.is_set()
    return shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dry_run": True}, "must name its run with run_id"),
        ({"dry_run": 1, "run_id": "one"}, "dry_run must be True or False, got 1"),
        ({"dry_run": True, "run_id": "one", "max_ticks": 1}, "must not be given for a dry run"),
        ({"dry_run": True, "run_id": "one", "clog_ids": ["c"]}, "must not be given for a dry run"),
        ({"dry_run": True, "run_id": "one", "hard_ms": -1}, "hard_ms"),
    ],
)
async def test_a_dry_run_with_wrong_arguments_is_refused(arguments: dict[str, Any], message: str) -> None:
    async with stage(Script(must_not_be)) as w:
        await start(w, run_id="one")
        with pytest.raises(InvalidValue, match=message):
            await w.ocean.advance(**arguments)
        with pytest.raises(RunNotFound):
            await w.ocean.advance(dry_run=True, run_id="nobody")
