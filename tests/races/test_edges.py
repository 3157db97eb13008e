"""Cases where two events happen in one transaction, or one directly after the other."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Clog, Continue, Done, Ocean, Ok, Outcome, RunStatus, SignalIdReused, Tick, Wait
from ocean.testing import world
from tests.invariants import check
from tests.races.arranging import units_written, until

pytestmark = pytest.mark.anyio


def a_sleeper(outcome: Outcome) -> Clog:
    clog = Clog("sleeper")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.emit("woken", {"reason": tick.reason, "timer": tick.timer})
        return outcome

    @clog.method
    async def set_alarm(tick: Tick, payload: Any) -> None:
        await tick.set_timer("alarm", at=payload)

    @clog.method
    async def drop_alarm(tick: Tick, payload: Any) -> None:
        await tick.cancel_timer("alarm")

    return clog


async def test_a_direct_call_that_cancels_the_only_timer_lets_the_run_go_idle() -> None:
    async with world([a_sleeper(Ok())]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="sleeper")
        alarm = w.clock.now() + 5_000
        await w.ocean.call_clog(run_id=run.run_id, method="set_alarm", payload=alarm)
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.wake_at) == (RunStatus.WAITING, alarm)
        await check(w)
        await w.ocean.call_clog(run_id=run.run_id, method="drop_alarm")
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.wake_at, info.pending_count) == (RunStatus.IDLE, None, 0)
        w.clock.advance(10_000)
        assert await w.drain() == []
        await check(w)


async def test_a_cancelled_timer_leaves_the_waits_own_time_as_it_was() -> None:
    async with world([a_sleeper(Wait(for_ms=9_000))]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="sleeper", input=1)
        await w.drain()
        until = w.clock.now() + 9_000
        await w.ocean.call_clog(run_id=run.run_id, method="set_alarm", payload=w.clock.now() + 2_000)
        assert (await w.ocean.explain(run.run_id)).due_at == until - 7_000
        await w.ocean.call_clog(run_id=run.run_id, method="drop_alarm")
        assert (await w.ocean.explain(run.run_id)).due_at == until
        w.clock.advance(9_000)
        await w.drain()
        woken = await w.ocean.read_events(run.run_id, types=["woken"])
        assert [event.payload["reason"] for event in woken] == ["created", "wake"]
        await check(w)


async def test_an_overdue_parent_and_its_overdue_child_end_in_one_poke() -> None:
    """Ending the parent cancels the child, which is on the same list of overdue runs."""
    clog = Clog("family")

    @clog.on_advance
    async def advance(tick: Tick) -> Ok:
        if tick.input == "parent":
            await tick.create_run(clog_id="family", deadline_at=tick.now + 1_000, on_parent_end="cancel")
        return Ok()

    async with world([clog]) as w:
        parent = await w.ocean.create_run(
            session_id="s", clog_id="family", input="parent", deadline_at=w.clock.now() + 500
        )
        await w.drain()
        w.clock.advance(2_000)
        await w.drain()
        [child] = (await w.ocean.list_runs(parent_run_id=parent.run_id)).runs
        ended = await w.ocean.get_run(parent.run_id)
        assert ended is not None
        assert ended.error is not None
        assert child.error is not None
        assert (ended.error["code"], child.error["code"]) == ("deadline_exceeded", "cancelled")
        await check(w)


async def test_a_repeated_signal_gets_the_first_result_unchanged_even_after_the_end() -> None:
    clog = Clog("short")

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        return Done()

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="short")
        first = await w.ocean.signal(run.run_id, {"n": 1}, signal_id="once")
        assert first.status is RunStatus.PENDING
        await w.drain()
        assert await w.ocean.signal(run.run_id, {"n": 1}, signal_id="once") == first


@pytest.mark.sqlite
async def test_a_tick_whose_guarded_row_keeps_moving_gets_its_turn_too() -> None:
    clog, calls = Clog("guard"), list[int]()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls.append(tick.call_number)
        await tick.read(session=True, guard=True)
        before = units_written(w)
        tasks.start_soon(write_beside, tick.call_number)
        await until(lambda: units_written(w) > before)
        return Done()

    async def write_beside(value: int) -> None:
        await w.ocean.call_clog(clog_id="guard", session_id="s", method="write", payload=value)

    @clog.method
    async def write(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session=payload)

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="guard", input=1)
        async with anyio.create_task_group() as tasks:
            await w.drain()
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert (info.status, info.attempt, calls) == (RunStatus.DONE, 0, [1, 2, 3])
        written = await w.ocean.read_events(clog_id="guard", types=["tick.committed", "call.committed"])
        assert [event.type for event in written] == [*["call.committed"] * 2, "tick.committed", "call.committed"]


async def test_writing_the_row_of_a_run_that_does_not_exist_fails_the_attempt_and_no_more() -> None:
    clog = Clog("writer")

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        await tick.read(runs=["nobody"])
        await tick.write(runs={"nobody": 1})
        return Done()

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="writer", input=1)
        await w.drain()
        info = await w.ocean.get_run(run.run_id)
        assert info is not None
        assert info.error is not None
        assert (info.attempt, info.error["code"]) == (1, "run_not_found")


async def test_a_commit_of_another_process_between_the_read_and_the_wait_is_noticed(tmp_path: Path) -> None:
    """The follower has read an empty page; the other process commits before the follower begins to wait."""
    clog = Clog("quiet")
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    async with Ocean.open(url, clogs=[clog]) as here, Ocean.open(url, clogs=[clog]) as there:
        seen = here._store.commits_seen()
        await there.create_run(session_id="s", clog_id="quiet")
        with anyio.fail_after(10):
            assert await here._store.next_commit(seen) > seen


async def test_the_order_of_keys_does_not_make_another_body() -> None:
    clog = Clog("keys")

    @clog.method
    async def echo(tick: Tick, payload: Any) -> Any:
        return payload

    async with world([clog]) as w:
        ocean = w.ocean
        run = await ocean.create_run(session_id="s", clog_id="keys", input={"a": 1, "b": 2}, run_id="r")
        again = await ocean.create_run(session_id="s", clog_id="keys", input={"b": 2, "a": 1}, run_id="r")
        assert again == run
        first = await ocean.signal("r", {"a": 1, "b": 2}, signal_id="s")
        assert await ocean.signal("r", {"b": 2, "a": 1}, signal_id="s") == first
        await ocean.call_clog(clog_id="keys", method="echo", payload={"a": 1, "b": 2}, request_key="k")
        await ocean.call_clog(clog_id="keys", method="echo", payload={"b": 2, "a": 1}, request_key="k")
        with pytest.raises(SignalIdReused):
            await ocean.signal("r", signal_id="s")


async def test_a_guard_holds_also_for_rows_from_the_ledger() -> None:
    clog, calls = Clog("guard"), list[int]()

    @clog.on_advance
    async def advance(tick: Tick) -> Done:
        calls.append(tick.call_number)
        await tick.read(session=True)
        await tick.read(session=True, guard=True)
        if tick.call_number == 1:
            await w.ocean.call_clog(clog_id="guard", session_id="s", method="write", payload=1)
        return Done()

    @clog.method
    async def write(tick: Tick, payload: Any) -> None:
        await tick.read(session=True)
        await tick.write(session=payload)

    async with world([clog]) as w:
        await w.ocean.create_run(session_id="s", clog_id="guard", input=1)
        await w.drain()
        assert calls == [1, 2]


async def test_a_continuation_comes_before_a_timer_set_in_the_past_and_that_after_earlier_signals() -> None:
    clog, reasons = Clog("order"), list[str]()

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        reasons.append(tick.reason)
        if tick.reason == "created":
            await tick.set_timer("old", at=0)
            return Continue()
        return Ok()

    async with world([clog]) as w:
        run = await w.ocean.create_run(session_id="s", clog_id="order", input=1)
        await w.ocean.signal(run.run_id)
        await w.drain()
        assert reasons == ["created", "continue", "signal", "timer"]
