"""Counters: takes by ticks, calls and other callers, and their results when another commit came first."""

from typing import Any

import anyio
import pytest

from ocean import (
    Clog,
    Continue,
    Done,
    Failed,
    InvalidValue,
    Ok,
    Outcome,
    Refuse,
    RequestKeyReused,
    Retry,
    RunStatus,
    Taken,
    Tick,
)
from ocean.testing import World
from tests.lifecycle.acting import Script, dump, log, look, stage, start

pytestmark = pytest.mark.anyio

DAY = 86_400_000


async def used(w: World, key: str, **rule: Any) -> int:
    return (await w.ocean.take(key, 0, **rule)).used


async def test_a_tick_takes_with_its_commit_and_not_before() -> None:
    async def act(tick: Tick) -> Outcome:
        assert await tick.take("sent", 2, limit=5) == Taken(True, 2, 5, 3, 0)
        assert await used(w, "sent", limit=5) == 0
        return Ok()

    async with stage(Script(act)) as w:
        await start(w)
        await w.drain()
        assert await used(w, "sent", limit=5) == 2


async def test_an_exhausted_quota_is_refused_in_the_first_call_with_the_time_to_retry() -> None:
    taken_results: list[Taken] = []

    async def act(tick: Tick) -> Outcome:
        taken_results.append(await tick.take("mails", limit=2, per_ms=DAY, refill="at_once"))
        return Ok()

    clog = Script(act)
    async with stage(clog) as w:
        w.clock.advance(DAY - w.clock.now() % DAY + 1_000)
        for _ in range(3):
            await start(w)
            await w.drain()
        assert [(taken.ok, taken.left) for taken in taken_results] == [(True, 1), (True, 0), (False, 0)]
        assert taken_results[2].retry_after_ms == DAY - 1_000
        assert len(clog.seen) == 3
        w.clock.advance(DAY - 1_000)
        await start(w)
        await w.drain()
        assert taken_results[3] == Taken(True, 1, 2, 1, 0)


@pytest.mark.parametrize(("outcome", "left"), [(Retry("later"), 1), (Failed("never"), 0)], ids=["retry", "failed"])
async def test_a_failed_attempt_takes_nothing_and_a_failed_run_what_it_took(outcome: Outcome, left: int) -> None:
    async def act(tick: Tick) -> Outcome:
        assert await tick.take("k", limit=1)
        return outcome

    async with stage(Script(act)) as w:
        await start(w)
        await w.drain()
        assert (await w.ocean.take("k", 0, limit=1)).left == left


async def test_a_tick_that_loses_a_counter_is_called_again_and_refused_without_an_attempt() -> None:
    taken_results: list[Taken] = []

    async def act(tick: Tick) -> Outcome:
        taken_results.append(await tick.take("k", limit=1))
        if tick.call_number == 1:
            assert await w.ocean.take("k", limit=1)
        await tick.emit("took", taken_results[-1].ok)
        return Done(taken_results[-1].ok)

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        assert taken_results == [Taken(True, 1, 1, 0, 0), Taken(False, 1, 1, 0, None)]
        assert (await look(w, run_id)).output is False
        assert await used(w, "k", limit=1) == 1
        (tick,) = await w.ocean.list_ticks(run_id)
        assert (tick.calls, tick.conflicts) == (2, 0)
        assert [event.payload for event in await log(w, run_id, "took")] == [False]
        (again,) = await log(w, run_id, "tick.restarted")
        assert (again.call, again.payload) == (2, {"because": "counter", "attempt": 0, "keys": ["k"]})


async def test_a_refusal_lasts_for_its_tick_even_if_the_counter_is_free_again() -> None:
    taken_results: list[bool] = []

    async def act(tick: Tick) -> Outcome:
        taken = await tick.take("k", limit=1)
        taken_results.append(taken.ok)
        if tick.call_number == 1:
            assert await w.ocean.take("k", limit=1)
        else:
            await w.ocean.reset_counter("k")
            assert not await tick.take("k", 0, limit=1)
        return Continue() if tick.number == 1 else Done()

    clog = Script(act)
    async with stage(clog) as w:
        await start(w)
        await w.drain()
        assert [(seen.number, seen.call) for seen in clog.seen] == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert taken_results == [True, False, True, False], "the next tick takes again"


async def test_a_tick_that_takes_many_keys_is_called_once_more_for_each_that_is_lost() -> None:
    keys = [f"k{i}" for i in range(8)]

    async def act(tick: Tick) -> Outcome:
        got = [key for key in keys if await tick.take(key, limit=1)]
        if tick.call_number <= len(keys):
            assert await w.ocean.take(keys[tick.call_number - 1], limit=1)
        return Done(got)

    clog = Script(act)
    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert (info.status, info.output, len(clog.seen)) == (RunStatus.DONE, [], 9)
        assert {seen.attempt for seen in clog.seen} == {0}


async def test_the_next_claim_of_a_tick_takes_again() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.call_number == 1:
            await tick.take("k", limit=1)
            assert await w.ocean.take("k", limit=1)
            return Ok()
        if tick.call_number == 2:
            await w.ocean.reset_counter("k")
            return Retry("something else")
        return Done((await tick.take("k", limit=1)).ok)

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        w.clock.advance(1_000)
        await w.drain()
        assert (await look(w, run_id)).output is True


async def test_takes_of_one_call_add_up_also_when_concurrent() -> None:
    taken_results: list[bool] = []

    async def one(tick: Tick) -> None:
        taken_results.append((await tick.take("k", limit=3)).ok)

    async def act(tick: Tick) -> Outcome:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one, tick)
        assert (await tick.take("k", 0, limit=3)).used == 3
        return Done()

    clog = Script(act)
    async with stage(clog) as w:
        await start(w)
        await w.drain()
        assert sorted(taken_results) == [False, False, True, True, True]
        assert len(clog.seen) == 1
        assert await used(w, "k", limit=3) == 3


def _till() -> Clog:
    till = Clog("till")

    @till.method
    async def pay(tick: Tick, payload: dict[str, Any]) -> bool:
        taken = await tick.take("k", payload.get("n", 1), limit=5)
        if payload.get("breaks"):
            raise RuntimeError("out of paper")
        if payload.get("refuses"):
            raise Refuse("no refunds")
        return taken.ok

    return till


async def test_nested_calls_take_for_their_tick_and_one_that_fails_takes_nothing() -> None:
    async def act(tick: Tick) -> Outcome:
        assert await tick.take("k", limit=5)
        assert await tick.call("till", "pay", {"n": 2})
        with pytest.raises(RuntimeError):
            await tick.call("till", "pay", {"n": 2, "breaks": True})
        with pytest.raises(Refuse):
            await tick.call("till", "pay", {"n": 1, "refuses": True})
        assert not await tick.call("till", "pay", {"n": 2})
        assert (await tick.take("k", 0, limit=5)).used == 4
        return Done()

    clog = Script(act)
    async with stage(clog, _till()) as w:
        await start(w)
        await w.drain()
        assert len(clog.seen) == 1
        assert await used(w, "k", limit=5) == 4


async def test_a_nested_call_knows_what_the_call_around_it_has_taken() -> None:
    async def act(tick: Tick) -> Outcome:
        assert await tick.take("k", 4, limit=5)
        assert not await tick.call("till", "pay", {"n": 2})
        assert await tick.call("till", "pay", {"n": 1})
        return Done()

    async with stage(Script(act), _till()) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).status is RunStatus.DONE
        assert await used(w, "k", limit=5) == 5


async def test_a_direct_call_takes_and_a_refused_one_returns_what_it_committed() -> None:
    async with stage(_till()) as w:
        assert await w.ocean.call_clog(clog_id="till", method="pay", payload={"n": 4})
        assert not await w.ocean.call_clog(clog_id="till", method="pay", payload={"n": 2})
        with pytest.raises(Exception, match="no refunds"):
            await w.ocean.call_clog(clog_id="till", method="pay", payload={"refuses": True})
        with pytest.raises(RuntimeError):
            await w.ocean.call_clog(clog_id="till", method="pay", payload={"breaks": True})
        assert await used(w, "k", limit=5) == 5


async def test_a_direct_call_runs_again_however_many_counters_it_loses() -> None:
    keys = [f"k{i}" for i in range(8)]
    calls = 0
    clog = Clog("c")

    @clog.method
    async def grab(tick: Tick, payload: Any) -> list[str]:
        nonlocal calls
        calls += 1
        got = [key for key in keys if await tick.take(key, limit=1)]
        if calls <= len(keys):
            assert await w.ocean.take(keys[calls - 1], limit=1)
        return got

    async with stage(clog) as w:
        assert await w.ocean.call_clog(clog_id="c", method="grab", request_key="once") == []
        assert calls == 9
        assert await w.ocean.call_clog(clog_id="c", method="grab", request_key="once") == []
        assert calls == 9


async def test_a_direct_call_that_lost_a_counter_is_refused_although_it_is_free_again() -> None:
    taken_results: list[bool] = []
    clog = Clog("c")

    @clog.method
    async def grab(tick: Tick, payload: Any) -> None:
        if len(taken_results) == 1:
            await w.ocean.reset_counter("k")
        taken_results.append((await tick.take("k", limit=1)).ok)
        if len(taken_results) == 1:
            assert await w.ocean.take("k", limit=1)

    async with stage(clog) as w:
        await w.ocean.call_clog(clog_id="c", method="grab")
        await w.ocean.call_clog(clog_id="c", method="grab")
        assert taken_results == [True, False, True], "the next call takes again"


async def test_a_nested_call_knows_what_it_has_taken_itself() -> None:
    till = _till()

    @till.method
    async def pay_twice(tick: Tick, payload: Any) -> list[bool]:
        return [(await tick.take("k", 3, limit=5)).ok for _ in range(2)]

    async def act(tick: Tick) -> Outcome:
        return Done(await tick.call("till", "pay_twice"))

    clog = Script(act)
    async with stage(clog, till) as w:
        run_id = await start(w)
        await w.drain()
        assert ((await look(w, run_id)).output, len(clog.seen)) == ([True, False], 1)


async def test_peeks_and_refusals_write_nothing() -> None:
    async with stage(Clog("c")) as w:
        await w.ocean.take("k", 2, limit=2)
        before = await dump(w)
        assert not await w.ocean.take("k", limit=2)
        assert not await w.ocean.take("k", 0, limit=2, request_key="peek")
        assert await w.ocean.take("other", 0, limit=2)
        assert await dump(w) == before


async def test_a_tick_that_only_peeks_is_not_called_again_when_others_take() -> None:
    async def act(tick: Tick) -> Outcome:
        assert (await tick.take("k", 0, limit=1)).left == 1
        assert await w.ocean.take("k", limit=1)
        return Done()

    clog = Script(act)
    async with stage(clog) as w:
        await start(w)
        await w.drain()
        assert len(clog.seen) == 1


async def test_a_request_key_takes_once() -> None:
    async with stage(Clog("c")) as w:
        first = await w.ocean.take("k", 3, limit=5, request_key="a")
        assert await w.ocean.take("k", 3, limit=5, request_key="a") == first
        assert await used(w, "k", limit=5) == 3
        with pytest.raises(RequestKeyReused):
            await w.ocean.take("k", 2, limit=5, request_key="a")
        assert not await w.ocean.take("k", 3, limit=5, request_key="b")
        assert await w.ocean.reset_counter("k", request_key="r")
        assert await w.ocean.reset_counter("k", request_key="r")
        assert await w.ocean.take("k", 3, limit=5, request_key="b"), "a no is not kept"


async def test_an_invalid_take_fails_the_attempt_with_its_reason() -> None:
    async def act(tick: Tick) -> Outcome:
        await tick.take("k", 3, limit=2)
        return Done()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        info = await look(w, run_id)
        assert info.error is not None
        assert (info.error["code"], info.error["message"]) == (
            "invalid_value",
            "InvalidValue: n must be at most the limit of 'k', 2, got 3",
        )
        with pytest.raises(InvalidValue, match="a counter's key"):
            await w.ocean.reset_counter("")
        with pytest.raises(InvalidValue, match="per_ms needs a limit"):
            await w.ocean.take("k", per_ms=5)


async def test_the_last_tick_of_a_run_takes_too() -> None:
    async def last(tick: Tick) -> Outcome:
        assert await tick.take("cleaned")
        return Ok()

    async with stage(Script(Ok(), ends=(last,))) as w:
        run_id = await start(w)
        await w.ocean.cancel_run(run_id)
        await w.drain()
        assert await used(w, "cleaned") == 1


async def test_a_tick_whose_row_and_counter_are_both_contested_commits() -> None:
    async def act(tick: Tick) -> Outcome:
        rows = await tick.read(global_=True)
        taken = await tick.take("k", limit=1)
        await tick.write(global_=[*(rows.global_ or []), taken.ok])
        if tick.call_number == 1:
            await w.ocean.call_clog(clog_id="c", method="scribble")
            assert await w.ocean.take("k", limit=1)
        return Done()

    clog = Script(act)

    @clog.method
    async def scribble(tick: Tick, payload: Any) -> None:
        await tick.read(global_=True)
        await tick.write(global_=["scribble"])

    async with stage(clog) as w:
        run_id = await start(w)
        await w.drain()
        again = [event.payload["because"] for event in await log(w, run_id, "tick.restarted")]
        assert (again, len(clog.seen)) == (["conflict"], 2), "the second call has looked before it took"
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_the_take_tool_returns_json() -> None:
    async def act(tick: Tick) -> Outcome:
        return Done(await tick.tools.invoke("ocean.counters.take", {"key": "k", "limit": 1, "per_ms": 500}))

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).output == {"ok": True, "used": 1, "limit": 1, "left": 0, "retry_after_ms": 0}


async def test_a_sweep_deletes_expired_counters_and_results_stay_the_same() -> None:
    async with stage(Clog("c")) as w:
        await w.ocean.take("cool", limit=1, per_ms=1_000)
        await w.ocean.take("cap", limit=1)
        assert (await w.ocean.sweep()).counters == 0
        assert not await w.ocean.take("cool", limit=1, per_ms=1_000)
        w.clock.advance(1_000)
        assert (await w.ocean.sweep()).counters == 1
        assert await w.ocean.take("cool", limit=1, per_ms=1_000)
        assert not await w.ocean.take("cap", limit=1)
