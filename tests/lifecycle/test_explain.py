"""`explain`: every condition that prevents a claim, and none when the next poke takes the run."""

import pytest

from ocean import Done, InvalidValue, Ok, Outcome, Retry, RetryPolicy, RunNotFound, Tick, TickResult, Wait
from tests.lifecycle.acting import LOCK_MS, Script, die_holding, stage, start, start_idle

pytestmark = pytest.mark.anyio


async def test_a_due_run_has_no_holds_and_the_next_poke_takes_it() -> None:
    async with stage(Script()) as w:
        run_id = await start(w)
        explanation = await w.ocean.explain(run_id)
        assert (explanation.holds, explanation.is_claimable, explanation.due_at) == ((), True, w.clock.now())
        assert len(await w.drain()) == 1


async def test_an_idle_run_waits_for_a_signal() -> None:
    async with stage(Script()) as w:
        (hold,) = (await w.ocean.explain(await start_idle(w))).holds
        assert (hold.code, hold.until) == ("idle", None)
        assert "a signal makes the run pending" in hold.message


async def test_the_hold_of_a_waiting_run_has_its_end() -> None:
    async with stage(Script(Wait(for_ms=500))) as w:
        run_id = await start(w)
        await w.drain()
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert (hold.code, hold.until) == ("waiting", w.clock.now() + 500)
        w.clock.advance(500)
        assert (await w.ocean.explain(run_id)).is_claimable


async def test_a_run_backing_off_is_explained_also_with_signals_queued() -> None:
    async with stage(Script(Retry("no"))) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert (hold.code, hold.until) == ("backing_off", w.clock.now() + 1_000)
        assert "attempt 1 failed" in hold.message


async def test_a_run_at_work_names_its_holder_and_when_the_lock_lapses() -> None:
    script = Script()
    async with stage(script) as w:
        run_id = await start(w)
        await die_holding(w, script)
        (hold,) = (await w.ocean.explain(run_id)).holds
        assert (hold.code, hold.holder, hold.until) == ("locked", "i-dead", w.clock.now() + LOCK_MS)
        w.clock.advance(LOCK_MS)
        assert (await w.ocean.explain(run_id)).is_claimable


async def test_pauses_are_listed_with_the_other_holds() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        await w.ocean.pause_run(run_id)
        await w.ocean.pause_clog("c")
        assert [hold.code for hold in (await w.ocean.explain(run_id)).holds] == ["clog_paused", "paused", "idle"]
        await w.ocean.resume_run(run_id)
        await w.ocean.signal(run_id)
        assert [hold.code for hold in (await w.ocean.explain(run_id)).holds] == ["clog_paused"]
        assert await w.drain() == []
        await w.ocean.resume_clog("c")
        assert (await w.ocean.explain(run_id)).is_claimable


async def test_a_run_of_a_clog_on_another_instance_is_explained() -> None:
    async with stage(Script()) as w:
        run_id = await start(w)
        other_instance = await w.instance([Script(clog_id="d")])
        (hold,) = (await other_instance.explain(run_id)).holds
        assert hold.code == "clog_elsewhere"
        assert "'c' is not registered here" in hold.message
        assert (await other_instance.advance()).advanced == 0


async def test_an_ended_run_has_the_ended_hold() -> None:
    async with stage(Script(Done())) as w:
        run_id = await start(w)
        await w.drain()
        assert [hold.code for hold in (await w.ocean.explain(run_id)).holds] == ["ended"]
        with pytest.raises(RunNotFound):
            await w.ocean.explain("nobody")


async def test_a_deadline_that_passed_makes_any_run_claimable_for_its_end() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w, deadline_at=w.clock.now() + 5)
        await w.ocean.pause_run(run_id)
        other_instance = await w.instance([Script(clog_id="d")])
        w.clock.advance(5)
        assert (await other_instance.explain(run_id)).is_claimable


async def test_a_pause_does_not_hold_a_last_tick_back() -> None:
    script = Script(ends=(Ok(),))
    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.pause_run(run_id)
        await w.ocean.pause_clog("c")
        await w.ocean.cancel_run(run_id)
        assert (await w.ocean.explain(run_id)).is_claimable
        await w.drain()
        assert [seen.reason for seen in script.ends] == ["cancel"]


async def test_explain_agrees_with_the_claim_at_every_moment_of_a_run() -> None:
    """Before each poke: no holds exactly if the poke then calls the run."""

    async def arm(tick: Tick) -> Outcome:
        await tick.set_timer("t", after_ms=20)
        return Wait(for_ms=10)

    script = Script(Retry("no", after_ms=15), arm, Ok(), Retry("again", after_ms=5), Done())
    async with stage(script) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=None))
        calls: list[TickResult] = []
        for _ in range(80):
            claimable = (await w.ocean.explain(run_id)).is_claimable
            advanced = await w.ocean.advance(max_ticks=1)
            assert (len(advanced.outcomes) == 1) == claimable
            calls += advanced.outcomes
            w.clock.advance(1)
        assert [result.outcome for result in calls] == ["retry", "wait", "ok", "retry", "done"]


async def test_a_clog_may_explain_what_its_sleeping_runs_wait_for() -> None:
    async def keep(tick: Tick) -> Outcome:
        await tick.read(run=True)
        await tick.write(run=tick.input)
        return Ok() if tick.input == "the post" else Wait(for_ms=500)

    script = Script(keep)

    @script.explains
    def explain_row(row: str) -> str | None:
        if row == "nonsense":
            raise ValueError("no such thing")
        return f"it waits for {row}" if row else None

    async with stage(script) as w:
        unwritten = await start_idle(w)
        runs = [await start(w, input) for input in ("the post", "nonsense", "")]
        due = (await w.ocean.explain(runs[0])).holds
        await w.drain()
        messages = [(await w.ocean.explain(run_id)).holds[0].message for run_id in (unwritten, *runs)]
        idle, asleep = "the inbox is empty; a signal makes the run pending", "its next timer or a signal"
        assert due == ()
        assert messages[:2] == [idle, f"{idle}; it waits for the post"]
        assert messages[2].endswith(
            f"{asleep}; its clog could not explain what it waits for (ValueError: no such thing)"
        )
        assert messages[3].endswith(asleep)
        elsewhere = await w.instance([])
        assert "the post" not in " ".join(hold.message for hold in (await elsewhere.explain(runs[0])).holds)


async def test_a_clog_has_at_most_one_explains_function() -> None:
    script = Script()
    script.explains(str)
    with pytest.raises(InvalidValue, match="must have one explains function"):
        script.explains(repr)
