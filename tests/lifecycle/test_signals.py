"""Signals: none lost, none twice, in order, one a tick or all that are due."""

import pytest

from ocean import (
    Continue,
    Done,
    Ok,
    Outcome,
    Retry,
    RunBusy,
    RunEnded,
    RunNotFound,
    SignalIdReused,
    Tick,
    Wait,
)
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_two_signals_before_a_tick_are_two_inputs_in_order() -> None:
    """D1, S1: the second signal does not overwrite the first."""
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start_idle(w)
        first = await w.ocean.signal(run_id, "a")
        second = await w.ocean.signal(run_id, "b")
        assert (first.number, second.number, first.status) == (1, 2, "pending")
        assert (await look(w, run_id)).pending_count == 2
        await w.drain()
        assert [seen.inputs for seen in script.seen] == [("a",), ("b",)]
        assert (await look(w, run_id)).pending_count == 0


async def test_a_clog_that_asks_for_all_gets_everything_that_is_due_at_once() -> None:
    script = Script(Ok(), inputs="all")
    async with stage(script) as w:
        run_id = await start_idle(w)
        for body in "abc":
            await w.ocean.signal(run_id, body)
        await w.ocean.signal(run_id, "later", deliver_at=w.clock.now() + 10)
        await w.drain()
        w.clock.advance(10)
        await w.drain()
        assert [seen.inputs for seen in script.seen] == [("a", "b", "c"), ("later",)]


async def test_a_signal_without_input_is_a_signal_and_erases_nothing() -> None:
    """S3: an absent payload wakes the run, behind what is queued already."""
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.signal(run_id, "queued")
        await w.ocean.signal(run_id)
        await w.drain()
        assert [(seen.reason, seen.inputs) for seen in script.seen] == [("signal", ("queued",)), ("signal", (None,))]


async def test_a_signal_without_input_to_a_busy_run_is_not_lost() -> None:
    """S3: the run is active when the signal without input comes."""

    async def poked(tick: Tick) -> Outcome:
        await w.ocean.signal(tick.run_id)
        return Ok()

    script = Script(poked, Ok())
    async with stage(script) as w:
        await start(w)
        await w.drain()
        assert [seen.reason for seen in script.seen] == ["created", "signal"]


async def test_a_signal_wakes_a_waiting_run_at_once() -> None:
    """D4, L10: the old wake time no longer delays it."""
    script = Script(Wait(for_ms=3_600_000), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        receipt = await w.ocean.signal(run_id, "now")
        run = await look(w, run_id)
        assert (receipt.status, run.status, run.wake_at, run.due_at) == ("pending", "pending", None, w.clock.now())
        await w.drain()
        assert script.bodies == [None, "now"]


@pytest.mark.parametrize("outcome", [Ok(), Wait(for_ms=3_600_000), Continue("more"), Retry("no", after_ms=5)])
async def test_a_signal_during_a_tick_is_seen_after_every_outcome(outcome: Outcome) -> None:
    """D5, S6: whatever the outcome, the signal that came meanwhile is delivered."""

    async def meanwhile(tick: Tick) -> Outcome:
        await w.ocean.signal(tick.run_id, "meanwhile")
        return outcome

    script = Script(meanwhile, Ok())
    async with stage(script) as w:
        run_id = await start(w, "first")
        await w.ocean.advance(max_ticks=1)
        assert (await look(w, run_id)).status == "pending"
        await w.drain()
        w.clock.advance(5)
        await w.drain()
        assert script.bodies[-1] == "meanwhile"
        assert "first" in script.bodies


async def test_a_signal_during_the_tick_that_ends_the_run_stays_readable_and_is_named() -> None:
    """D5, S7: acknowledged, not delivered, and announced."""

    async def last(tick: Tick) -> Outcome:
        await w.ocean.signal(tick.run_id, "late", signal_id="s-1")
        return Done("over")

    async with stage(Script(last)) as w:
        run_id = await start(w)
        await w.drain()
        (undelivered,) = await log(w, run_id, "signal.undelivered")
        assert undelivered.payload == {
            "to": run_id,
            "count": 1,
            "inputs": [{"number": 2, "kind": "signal", "signal_id": "s-1"}],
        }
        run = await look(w, run_id)
        assert (run.status, run.pending_count) == ("done", 1)
        assert any("late" in str(row) for row in (await dump(w))["ocean_inbox"])


async def test_a_signal_to_an_ended_run_is_refused_and_writes_nothing() -> None:
    """D12, S7: 409, and the tables are as before."""
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        await w.drain()
        before = await dump(w)
        with pytest.raises(RunEnded) as refusal:
            await w.ocean.signal(run_id, "late")
        assert (refusal.value.http_status, refusal.value.code) == (409, "run_ended")
        with pytest.raises(RunEnded):
            await w.ocean.signal(run_id, "late", if_idle=True)
        assert await dump(w) == before


async def test_a_signal_to_an_unknown_run_is_refused_and_writes_nothing() -> None:
    """S7: no silent no-op."""
    async with stage(Script()) as w:
        before = await dump(w)
        with pytest.raises(RunNotFound) as refusal:
            await w.ocean.signal("nobody", "hello")
        assert refusal.value.http_status == 404
        assert await dump(w) == before


async def test_a_redelivered_signal_is_processed_once() -> None:
    """S8: the same signal id with the same body gets the first receipt, also after the run ended."""
    script = Script(Ok(), Done())
    async with stage(script) as w:
        run_id = await start_idle(w)
        first = await w.ocean.signal(run_id, {"n": 1, "m": 2}, signal_id="hook-1")
        again = await w.ocean.signal(run_id, {"m": 2, "n": 1}, signal_id="hook-1")
        assert again == first
        await w.drain()
        await w.ocean.signal(run_id, "end")
        await w.drain()
        before = await dump(w)
        late = await w.ocean.signal(run_id, {"n": 1, "m": 2}, signal_id="hook-1")
        assert (late.number, late.seq) == (first.number, first.seq)
        assert await dump(w) == before
        assert script.bodies == [{"n": 1, "m": 2}, "end"]
        assert script.seen[0].signal_id == "hook-1"


@pytest.mark.parametrize("is_ended", [False, True])
async def test_a_signal_id_with_another_body_is_refused(is_ended: bool) -> None:
    async with stage(Script(Done())) as w:
        run_id = await start_idle(w)
        await w.ocean.signal(run_id, 1, signal_id="x")
        await w.drain() if is_ended else None
        before = await dump(w)
        with pytest.raises(SignalIdReused) as refusal:
            await w.ocean.signal(run_id, 2, signal_id="x")
        assert refusal.value.http_status == 409
        assert await dump(w) == before


async def test_the_same_signal_id_may_be_used_for_two_runs() -> None:
    script = Script(Ok())
    async with stage(script) as w:
        one, two = await start_idle(w), await start_idle(w)
        await w.ocean.signal(one, 1, signal_id="x")
        await w.ocean.signal(two, 2, signal_id="x")
        await w.drain()
        assert sorted(script.bodies) == [1, 2]


async def test_a_delayed_signal_arrives_at_its_time_and_makes_an_idle_run_wait_for_it() -> None:
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start_idle(w)
        at = w.clock.now() + 1_000
        receipt = await w.ocean.signal(run_id, "later", deliver_at=at)
        run = await look(w, run_id)
        assert (receipt.status, run.status, run.wake_at) == ("waiting", "waiting", at)
        w.clock.advance(999)
        assert await w.drain() == []
        w.clock.advance(1)
        await w.drain()
        assert [(seen.reason, seen.inputs) for seen in script.seen] == [("signal", ("later",))]


async def test_inputs_come_in_order_of_availability_not_of_arrival() -> None:
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start_idle(w)
        now = w.clock.now()
        await w.ocean.signal(run_id, "third", deliver_at=now + 30)
        await w.ocean.signal(run_id, "first", deliver_at=now + 10)
        await w.ocean.signal(run_id, "second", deliver_at=now + 20)
        w.clock.advance(100)
        await w.drain()
        assert script.bodies == ["first", "second", "third"]


async def test_a_delayed_signal_survives_others_and_is_not_early() -> None:
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.signal(run_id, "later", deliver_at=w.clock.now() + 50)
        await w.ocean.signal(run_id, "now")
        await w.drain()
        assert script.bodies == ["now"]
        assert (await look(w, run_id)).wake_at == w.clock.now() + 50
        w.clock.advance(50)
        await w.drain()
        assert script.bodies == ["now", "later"]


async def test_if_idle_is_accepted_by_an_idle_run_only() -> None:
    """The error has status, holder and lock expiry; nothing is written."""
    held: list[RunBusy] = []

    async def at_work(tick: Tick) -> Outcome:
        with pytest.raises(RunBusy) as refusal:
            await w.ocean.signal(tick.run_id, "x", if_idle=True)
        held.append(refusal.value)
        return Ok()

    script = Script(at_work, Ok())
    async with stage(script) as w:
        run_id = await start_idle(w)
        assert (await w.ocean.signal(run_id, 1, if_idle=True)).status == "pending"
        before = await dump(w)
        with pytest.raises(RunBusy) as refusal:
            await w.ocean.signal(run_id, 2, if_idle=True)
        assert (refusal.value.http_status, refusal.value.code) == (409, "run_busy")
        assert refusal.value.details["status"] == "pending"
        assert await dump(w) == before
        await w.drain()
        assert dict(held[0].details) == {
            "status": "active",
            "locked_by": w.ocean.instance_id,
            "lock_expires_at": w.clock.now() + 30_000,
        }
        await w.ocean.signal(run_id, "later", deliver_at=w.clock.now() + 5)
        with pytest.raises(RunBusy):
            await w.ocean.signal(run_id, 3, if_idle=True)
