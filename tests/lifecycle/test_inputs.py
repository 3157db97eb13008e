"""A tick's number and inputs are fixed at its first claim, over retries, crashes and later inputs."""

import pytest

from ocean import Done, Ok, Outcome, Retry, RetryPolicy, Tick, Wait
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_a_crash_between_claim_and_commit_loses_no_input() -> None:
    """D2, S2: the input is consumed by the commit only; the next holder gets it again."""
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start(w, "precious")
        await die_holding(w, script)
        assert (await look(w, run_id)).pending_count == 1
        w.clock.advance(LOCK_MS)
        await w.drain()
        (seen,) = script.seen
        assert (seen.inputs, seen.number, seen.call, seen.attempt) == (("precious",), 1, 2, 1)
        assert (await look(w, run_id)).pending_count == 0


async def test_a_retry_gets_the_same_inputs_under_the_same_tick_number() -> None:
    script = Script(Retry("no"), Ok(), inputs="all")
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.signal(run_id, "a")
        await w.ocean.signal(run_id, "b")
        await w.drain()
        await w.ocean.signal(run_id, "newcomer")
        w.clock.advance(1_000)
        await w.drain()
        assert [(seen.number, seen.inputs) for seen in script.seen] == [
            (1, ("a", "b")),
            (1, ("a", "b")),
            (2, ("newcomer",)),
        ]


async def test_an_input_available_earlier_that_arrives_later_is_not_added_to_a_retry() -> None:
    keys = []

    async def failing(tick: Tick) -> Outcome:
        keys.append(tick.idempotency_key)
        return Retry("no") if tick.call_number < 3 else Ok()

    script = Script(failing)
    async with stage(script) as w:
        run_id = await start_idle(w)
        w.clock.advance(100)
        await w.ocean.signal(run_id, "fixed")
        await w.drain()
        await w.ocean.signal(run_id, "backdated", deliver_at=w.clock.now() - 99)
        w.clock.advance(1_000)
        await w.drain()
        w.clock.advance(2_000)
        await w.drain()
        assert script.bodies == ["fixed", "fixed", "fixed", "backdated"]
        assert len(set(keys[:3])) == 1
        assert keys[3] != keys[0]


async def test_a_crash_and_a_retry_restart_the_tick_and_are_logged() -> None:
    script = Script(Retry("no"), Ok())
    async with stage(script) as w:
        run_id = await start(w, "x")
        await w.drain()
        w.clock.advance(1_000)
        await die_holding(w, script)
        w.clock.advance(LOCK_MS)
        await w.drain()
        restarts = await log(w, run_id, "tick.restarted")
        assert [(event.tick, event.call, event.payload["because"]) for event in restarts] == [
            (1, 2, "retry"),
            (1, 3, "crash"),
        ]
        assert restarts[1].payload["previous"] == "i-dead"
        assert [seen.call for seen in script.seen] == [1, 3]
        (tick,) = await w.ocean.list_ticks(run_id)
        assert (tick.tick, tick.calls, tick.reason, tick.outcome) == (1, 3, "created", "ok")


async def test_a_run_that_kills_its_process_is_not_retried_for_ever() -> None:
    """D8, L4: a crash is an attempt; when they are spent the run fails without another call."""
    script = Script(Ok())
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=3))
        for _ in range(3):
            await die_holding(w, script)
            w.clock.advance(LOCK_MS)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.attempt) == ("failed", 3)
        assert run.error is not None
        assert run.error["code"] == "crashed"
        assert script.seen == []


async def test_an_active_run_whose_lock_lapsed_is_claimed_by_the_next_poke() -> None:
    """D3, L10: an active run is due when its lock has expired, and not before."""
    script = Script(Done("saved"))
    async with stage(script) as w:
        run_id = await start(w)
        claim = await die_holding(w, script)
        assert (await look(w, run_id)).status == "active"
        assert (await w.ocean.advance()).next_wake_at == claim.lock_expires_at
        w.clock.advance(LOCK_MS - 1)
        assert await w.drain() == []
        w.clock.advance(1)
        await w.drain()
        assert (await look(w, run_id)).output == "saved"


async def test_a_crash_while_a_timer_is_set_leaves_the_timer_alone() -> None:
    async def arm(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=100, input="ring")
        return Wait(for_ms=1)

    script = Script(arm, Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1)
        await die_holding(w, script)
        w.clock.advance(LOCK_MS)
        await w.drain()
        assert [(seen.reason, seen.timer) for seen in script.seen] == [
            ("created", None),
            ("wake", None),
            ("timer", "t"),
        ]
        assert (await look(w, run_id)).status == "idle"


async def test_a_timer_that_fires_into_a_crash_is_given_again_and_once_only() -> None:
    async def arm(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=100, input="ring")
        return Ok()

    script = Script(arm, Ok())
    async with stage(script) as w:
        await start(w)
        await w.drain()
        w.clock.advance(100)
        await die_holding(w, script)
        w.clock.advance(LOCK_MS)
        await w.drain()
        assert [(seen.number, seen.call, seen.timer, seen.inputs) for seen in script.seen[1:]] == [
            (2, 2, "t", ("ring",))
        ]


async def test_the_reason_of_a_tick_survives_its_retries() -> None:
    script = Script(Ok(), Retry("no"), Ok())
    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id, deliver_at=w.clock.now() + 5)
        w.clock.advance(5)
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        assert [seen.reason for seen in script.seen] == ["created", "signal", "signal"]


async def test_a_tick_that_retries_commits_none_of_its_rows_events_runs_timers_or_signals() -> None:
    """R4: nothing of the half tick is left for the retry to build upon."""
    receiver = Script(Ok(), clog_id="receiver")

    async def half(tick: Tick) -> Outcome:
        rows = await tick.read(run=True, session=True, tick=["turn"], history=5)
        assert not rows.has_run
        assert not rows.has_session
        assert rows.history == []
        await tick.write(run={"n": 1}, session=["x"], tick={"turn": "hello"})
        await tick.emit("said", 1)
        await tick.create_run(clog_id="receiver", input="child")
        await tick.signal(other, "hello")
        await tick.set_timer("t", after_ms=10)
        await tick.set_attributes(colour="red")
        return Retry("no") if tick.call_number == 1 else Ok()

    async with stage(Script(half), receiver) as w:
        other = await start_idle(w, clog_id="receiver")
        run_id = await start(w)
        await w.drain()
        assert receiver.seen == []
        assert await log(w, run_id, "said") == []
        assert (await look(w, run_id)).attributes == {}
        assert (await w.ocean.count_runs()).count == 2
        w.clock.advance(1_000)
        await w.drain()
        assert len(await log(w, run_id, "said")) == 1
        assert sorted(receiver.bodies) == ["child", "hello"]
