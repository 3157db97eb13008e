"""Edge cases of the contract: the result where two rules meet, and what the log contains."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from ocean import Clog, Continue, Done, InvalidValue, Ocean, OceanError, Ok, Outcome, Retry, RetryPolicy, Tick
from ocean.state.errors import RunNotFound
from ocean.testing import world, worlds
from tests.lifecycle.acting import Script, log, look, stage, start, start_idle

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(max_attempts=1)


async def test_a_plain_step_function_runs_in_a_thread_and_its_result_is_remembered() -> None:
    threads: list[threading.Thread] = []
    results: list[int] = []

    def work(key: str) -> int:
        threads.append(threading.current_thread())
        return len(threads)

    async def act(tick: Tick) -> Outcome:
        results.append(await tick.step("work", work))
        return Retry("again") if tick.call_number == 1 else Done()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(5_000)
        await w.drain()
        assert (await look(w, run_id)).status == "done"
    assert results == [1, 1]
    (thread,) = threads
    assert thread is not threading.current_thread()


async def test_the_inbox_can_be_listed_before_and_after_the_end() -> None:
    async with stage(Script(Ok(), Done())) as w:
        run_id = await start(w, "a")
        await w.drain()
        for body in ("b", "c"):
            await w.ocean.signal(run_id, body)
        before = await w.ocean.list_inputs(run_id)
        assert [(each.body, each.consumed_tick) for each in before] == [("a", 1), ("b", None), ("c", None)]
        await w.drain()
        assert (await look(w, run_id)).status == "done"
        after = await w.ocean.list_inputs(run_id)
        assert [(each.body, each.consumed_tick) for each in after] == [("a", 1), ("b", 2), ("c", None)]
        assert await w.ocean.list_inputs(run_id, limit=2) == after[:2]
        assert await w.ocean.list_inputs(run_id, after=after[1].number) == after[2:]
        with pytest.raises(RunNotFound):
            await w.ocean.list_inputs("typo")


async def test_a_failing_on_end_leaves_its_error_and_its_caller_in_the_log() -> None:
    async def broken(tick: Tick) -> Outcome:
        raise ValueError("broken end")

    async with stage(Script(Ok(), ends=(broken,), version="7")) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.cancel_run(run_id)
        await w.drain()
        while (await look(w, run_id)).status != "failed":
            w.clock.advance(60_000)
            await w.drain()
        last = (await log(w, run_id, "tick.failed"))[-1]
        assert "broken end" in last.payload["error"]["message"]
        assert last.payload["version"] == "7"
        assert last.payload["epoch"] >= 2
        assert last.payload["instance"] == w.ocean.instance_id


async def test_the_last_failing_call_of_an_exhausted_run_is_in_the_log() -> None:
    async with stage(Script(Retry("first"), Retry("second"), version="7")) as w:
        run_id = await start(w, retry=RetryPolicy(max_attempts=2))
        await w.drain()
        w.clock.advance(60_000)
        await w.drain()
        assert (await look(w, run_id)).status == "failed"
        (failed,) = await log(w, run_id, "tick.failed")
        assert (failed.tick, failed.call) == (1, 2)
        assert failed.payload["error"]["message"] == "second"
        assert (failed.payload["epoch"], failed.payload["version"]) == (2, "7")
        assert failed.payload["instance"] == w.ocean.instance_id


async def test_an_outcome_after_the_time_limit_is_a_retry() -> None:
    async def late(tick: Tick) -> Outcome:
        w.clock.jump(1_000)
        return Done("late")

    async with stage(Script(late, tick_ms=1_000)) as w:
        run_id = await start(w, retry=ONCE)
        await w.drain()
        run = await look(w, run_id)
        assert (run.status, run.output) == ("failed", None)
        assert "tick_timeout" in repr(run.error)


async def test_a_handler_that_swallows_its_cancellation_still_times_out() -> None:
    began = anyio.Event()

    async def stubborn(tick: Tick) -> Outcome:
        began.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            pass
        return Done("late")

    async with stage(Script(stubborn, tick_ms=1_000)) as w:
        run_id = await start(w, retry=ONCE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(w.drain)
            await began.wait()
            w.clock.advance(1_000)
        run = await look(w, run_id)
        assert (run.status, run.output) == ("failed", None)
        assert "tick_timeout" in repr(run.error)


async def test_two_runs_that_make_the_same_child_at_once_get_the_same_one() -> None:
    made = [anyio.Event(), anyio.Event()]

    async def act(tick: Tick) -> Outcome:
        child_id = await tick.create_run(clog_id="d", input=1, dedupe_key="k")
        made[tick.input].set()
        await made[1 - tick.input].wait()
        return Done(child_id)

    async with stage(Script(act), Script(Done(), clog_id="d")) as w:
        parents = [await start(w, number, retry=ONCE) for number in (0, 1)]
        await w.drain()
        first, second = [await look(w, run_id) for run_id in parents]
        assert first.status == second.status == "done"
        assert first.output == second.output
        assert (await look(w, first.output)).clog_id == "d"


async def test_a_run_passes_its_dedupe_key_to_another_run_in_one_tick() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.input == "heir":
            return Ok()
        await tick.release_dedupe_key()
        return Done(await tick.create_run(clog_id="c", input="heir", dedupe_key="k"))

    async with stage(Script(act)) as w:
        run_id = await start(w, retry=ONCE, dedupe_key="k")
        await w.drain()
        run = await look(w, run_id)
        assert run.status == "done"
        assert run.output != run_id
        again = await w.ocean.create_run(session_id="s", clog_id="c", input="heir", dedupe_key="k")
        assert again.run_id == run.output


@pytest.mark.parametrize(("moved", "calls"), [("global_", 1), ("session", 2)])
async def test_a_guard_on_a_second_read_guards_only_the_rows_it_names(moved: str, calls: int) -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.read(run=True, session=True, global_=True)
        await tick.call("c", "look_again")
        if len(script.seen) == 1:
            await w.ocean.call_clog(clog_id="c", method="bump", session_id="s")
        await tick.write(run=1)
        return Done()

    script = Script(act)

    @script.method
    async def look_again(tick: Tick, payload: Any) -> None:
        await tick.read(session=True, guard=True)

    @script.method
    async def bump(tick: Tick, payload: Any) -> None:
        row: dict[str, Any] = {moved: True}
        await tick.read(**row)
        await tick.write(**row)

    async with stage(script) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).status == "done"
    assert len(script.seen) == calls


async def test_step_names_of_clogs_with_slashes_do_not_collide() -> None:
    inner = Clog("a/b")

    @inner.method
    async def m(tick: Tick, payload: Any) -> str:
        return await tick.step("c", lambda key: "of a/b", scope="run")

    async def act(tick: Tick) -> Outcome:
        own = await tick.step("b/c", lambda key: "of a", scope="run")
        return Done([own, await tick.call("a/b", "m")])

    async with stage(Script(act, clog_id="a"), inner) as w:
        run_id = await start(w, clog_id="a", retry=ONCE)
        await w.drain()
        assert (await look(w, run_id)).output == ["of a", "of a/b"]


async def test_events_of_a_call_contain_their_call_and_cause() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.stream("token", 1)
        await tick.set_timer("t", after_ms=50)
        return Ok()

    async with stage(Script(act, Done())) as w:
        run_id = await start(w)
        await w.drain()
        await w.ocean.signal(run_id)
        await w.drain()
        events = {event.type: event for event in await log(w, run_id)}
        for type in ("token", "timer.set", "run.waiting"):
            event = events[type]
            assert (event.tick, event.call) == (1, 1), type
            assert event.causation_id is not None, type
        assert events["token"].causation_id == events["timer.set"].causation_id == events["run.waiting"].causation_id
        assert (events["run.done"].tick, events["run.done"].call) == (2, 1)
        assert events["run.done"].causation_id == events["tick.committed"].causation_id is not None


async def test_a_tick_that_was_given_back_is_restarted_because_of_that() -> None:
    began = anyio.Event()

    async def stuck(tick: Tick) -> Outcome:
        began.set()
        await anyio.sleep_forever()
        return Ok()

    async def poke() -> None:
        await w.ocean.advance(hard_ms=50)

    async with stage(Script(stuck, Done())) as w:
        run_id = await start(w)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(poke)
            await began.wait()
            w.clock.advance(50)
        await w.drain()
        (restarted,) = await log(w, run_id, "tick.restarted")
        assert restarted.payload["because"] == "give_back"


async def test_the_event_of_a_direct_call_has_the_status_after_it() -> None:
    script = Script()

    @script.method
    async def wake_later(tick: Tick, payload: Any) -> None:
        await tick.set_timer("t", after_ms=5)

    async with stage(script) as w:
        run_id = await start_idle(w)
        await w.ocean.call_clog(run_id=run_id, method="wake_later")
        (called,) = await log(w, run_id, "call.committed")
        assert called.payload == {"method": "wake_later", "status": "waiting"}


async def test_the_log_of_an_unknown_run_is_an_error_and_that_of_a_deleted_one_is_not() -> None:
    async with stage(Script(Done())) as w:
        with pytest.raises(RunNotFound):
            await w.ocean.read_events("typo")
        with pytest.raises(RunNotFound):
            async for _ in w.ocean.follow("typo"):
                pass
        run_id = await start(w)
        await w.drain()
        await w.ocean.delete_run(run_id)
        assert await w.ocean.get_run(run_id) is None
        events = await w.ocean.read_events(run_id)
        assert "run.done" in [event.type for event in events]
        assert await w.ocean.read_events(run_id, after=events[-1].seq) == []


async def test_draining_an_endless_run_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "MOST_TICKS", 50)
    async with stage(Script(Continue())) as w:
        await start(w)
        with pytest.raises(AssertionError, match="Continue"):
            await w.drain()


async def test_the_error_for_an_unknown_database_url_names_the_supported_ones() -> None:
    with pytest.raises(OceanError, match=r"sqlite://:memory: or postgresql://"):
        async with Ocean.open("mysql://x"):
            pass


WRONG: dict[str, Callable[[], object]] = {
    "retry.jitter": lambda: RetryPolicy(jitter="x"),  # type: ignore[arg-type]
    "retry.delays_ms": lambda: RetryPolicy(delays_ms=5),  # type: ignore[arg-type]
    "tick_ms": lambda: Clog("c", tick_ms="5"),  # type: ignore[arg-type]
    "lock_ms": lambda: Clog("c", lock_ms="5"),  # type: ignore[arg-type]
    "tools": lambda: Clog("c", tools="ocean.http.fetch"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_declaration_of_a_wrong_type_is_refused_at_once(what: str) -> None:
    with pytest.raises(InvalidValue, match=what):
        WRONG[what]()


@pytest.mark.parametrize("clogs", [Clog("c"), ["c"]], ids=["a clog", "names"])
async def test_clogs_that_are_not_a_list_of_clogs_are_refused(clogs: Any) -> None:
    with pytest.raises(InvalidValue, match="clogs"):
        async with world(clogs=clogs):
            pass


async def test_the_error_for_a_misuse_in_a_handler_names_it() -> None:
    async def act(tick: Tick) -> Outcome:
        with pytest.raises(InvalidValue, match="runs"):
            await tick.read(runs="abc")
        with pytest.raises(InvalidValue, match="history"):
            await tick.read(history="x")  # type: ignore[arg-type]
        with pytest.raises(OceanError, match="use await"):
            tick.block(tick.read(run=True))
        return Done("all")

    async with stage(Script(act)) as w:
        run_id = await start(w, retry=ONCE)
        await w.drain()
        assert (await look(w, run_id)).output == "all"


async def test_a_handler_lists_runs_oldest_first() -> None:
    async def act(tick: Tick) -> Outcome:
        page = await tick.list_runs(clog_id="d", order="oldest")
        return Done([run.run_id for run in page.runs])

    async with stage(Script(act), Script(clog_id="d")) as w:
        ids = []
        for _ in range(3):
            ids.append(await start_idle(w, clog_id="d"))
            w.clock.advance(1)
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == ids
