"""Concurrency keys: how many runs are active at once, how long a key is held, and what `explain` shows meanwhile."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean import Clog, Continue, Done, InvalidValue, Key, Ok, Outcome, Retry, RetryPolicy, RunStatus, Tick, Wait
from ocean.state.errors import RequestKeyReused
from ocean.state.records import KeyInfo
from ocean.testing import World
from tests.lifecycle.acting import Script, die_holding, dump, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio


async def _hold(w: World, run_id: str) -> tuple[str, str | None]:
    """Return the message and the holder of the run's only hold."""
    (hold,) = (await w.ocean.explain(run_id)).holds
    assert hold.code == "key_full"
    assert hold.until is None
    return hold.message, hold.holder


@pytest.mark.parametrize("limit", [None, 3])
async def test_no_more_runs_than_the_limit_are_active(limit: int | None, url: str) -> None:
    at_work = most = 0

    async def act(tick: Tick) -> Outcome:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        at_work -= 1
        return Continue() if tick.number < 3 else Done()

    clog = Script(act)
    async with stage(clog, url=url) as w:
        if limit:
            await w.ocean.set_limit("k", limit)
        runs = [await start(w, concurrency_keys=["k"]) for _ in range(12)]
        results = await w.drain()
        assert [result.outcome for result in results].count("done") == 12
        assert len(results) == 36
        assert most == (limit or 1)
        assert {(await look(w, run_id)).status for run_id in runs} == {RunStatus.DONE}


async def test_a_limit_of_many_is_used_by_one_poke_at_once() -> None:
    at_work, all_there = 0, anyio.Event()

    async def act(tick: Tick) -> Outcome:
        nonlocal at_work
        at_work += 1
        if at_work == 20:
            all_there.set()
        await all_there.wait()
        return Done()

    async with stage(Script(act)) as w:
        await w.ocean.set_limit("k", 0)
        for _ in range(25):
            await start(w, concurrency_keys=["k"])
        await w.ocean.set_limit("k", 20)
        with anyio.fail_after(20):
            await w.drain()
        assert at_work == 25


async def test_hold_run_lasts_from_the_first_tick_to_the_end_over_waits_and_signals() -> None:
    clog = Script(Wait(for_ms=1_000), Ok(), Retry("later", after_ms=500), Continue(), Done())
    async with stage(clog) as w:
        first = await start_idle(w, concurrency_keys=[Key("k", hold="run")])
        assert await w.ocean.get_key("k") == KeyInfo("k", 1, 0, 0), "not before its first tick"
        await w.ocean.signal(first)
        await w.drain()
        second = await start(w, concurrency_keys=["k"])
        for ms, status in ((1_000, RunStatus.IDLE), (0, RunStatus.PENDING)):
            assert (await look(w, second)).parked_on == "k"
            w.clock.advance(ms)
            if not ms:
                await w.ocean.signal(first, "on")
            await w.drain()
            assert (await look(w, first)).status is status
        w.clock.advance(500)
        await w.drain()
        assert [(await look(w, run)).status for run in (first, second)] == [RunStatus.DONE, RunStatus.DONE]
        assert await w.ocean.list_keys() == []


async def test_a_run_has_at_most_three_keys_and_shows_them() -> None:
    async with stage(Script()) as w:
        keys = ["x", Key("y", "run"), Key("z")]
        run = await start(w, concurrency_keys=keys)
        assert (await look(w, run)).concurrency_keys == (Key("x"), Key("y", "run"), Key("z", "tick"))


WRONG: list[tuple[Any, str]] = [
    (["a", "b", "c", "d"], "concurrency_keys must have at most 3 keys, got ['a', 'b', 'c', 'd']"),
    (["a", Key("a", "run")], "concurrency_keys must not name a key twice, got ['a', 'a']"),
    ("abc", "concurrency_keys must be a list of names or Key(name, hold=…), got 'abc'"),
    (Key("a"), "concurrency_keys must be a list of names or Key(name, hold=…), got Key(name='a', hold='tick')"),
    (None, "concurrency_keys must be a list of names or Key(name, hold=…), got None"),
    (7, "concurrency_keys must be a list of names or Key(name, hold=…), got 7"),
    ([7], "a concurrency key must be a non-empty string, got 7"),
    ([""], "a concurrency key must be a non-empty string, got ''"),
    ([None], "a concurrency key must be a non-empty string, got None"),
    ([Key("a", "always")], "hold must be 'tick' or 'run', got 'always'"),  # type: ignore[arg-type]
    ([Key("a", None)], "hold must be 'tick' or 'run', got None"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("keys", "message"), WRONG, ids=[str(keys) for keys, _ in WRONG])
async def test_wrong_keys_are_refused_precisely_and_nothing_is_written(keys: Any, message: str) -> None:
    async with stage(Script()) as w:
        before = await dump(w)
        with pytest.raises(InvalidValue) as refused:
            await start(w, concurrency_keys=keys)
        assert str(refused.value) == message
        assert await dump(w) == before


@pytest.mark.parametrize("limit", [-1, 1_000_001, 1.0, "2", True, None])
async def test_a_wrong_limit_is_refused_and_nothing_is_written(limit: Any) -> None:
    async with stage() as w:
        before = await dump(w)
        with pytest.raises(InvalidValue, match=r"limit must be an integer from 0 to 1000000, got "):
            await w.ocean.set_limit("k", limit)
        with pytest.raises(InvalidValue, match="key"):
            await w.ocean.set_limit("", 1)
        assert await dump(w) == before


async def test_a_request_key_makes_set_limit_happen_once() -> None:
    async with stage() as w:
        first = await w.ocean.set_limit("k", 3, request_key="r")
        await w.ocean.set_limit("k", 1)
        assert await w.ocean.set_limit("k", 3, request_key="r") == first
        assert (await w.ocean.get_key("k")).limit == 1
        with pytest.raises(RequestKeyReused):
            await w.ocean.set_limit("k", 4, request_key="r")


async def test_explain_names_the_key_its_use_and_a_holder() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        holder = await start(w, concurrency_keys=["k"])
        await die_holding(w, clog)
        second, third = [await start(w, concurrency_keys=["k"]) for _ in range(2)]
        full = "concurrency key 'k' is full, 1 of 1 slots in use; wait for a free slot, or raise set_limit"
        assert await _hold(w, second) == (full, holder)
        assert await _hold(w, third) == (full, holder)
        await w.ocean.cancel_run(holder)
        assert (await w.ocean.explain(second)).is_claimable
        behind = "concurrency key 'k' has a free slot, but other runs are before it in line"
        assert await _hold(w, third) == (behind, None)
        assert (await w.ocean.advance(run_id=third)).outcomes == ()
        assert [result.run_id for result in await w.drain()] == [second, third]


async def test_explain_of_a_key_whose_limit_is_zero_names_no_holder() -> None:
    async with stage(Script()) as w:
        await w.ocean.set_limit("k", 0)
        run = await start(w, concurrency_keys=["k"])
        message, holder = await _hold(w, run)
        assert message.startswith("concurrency key 'k' is full, 0 of 0 slots in use")
        assert holder is None


async def test_explain_names_keys_only_when_the_run_has_something_to_do() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        await start(w, concurrency_keys=["k"])
        await die_holding(w, clog)
        idle = await start_idle(w, concurrency_keys=["k"])
        assert [hold.code for hold in (await w.ocean.explain(idle)).holds] == ["idle"]
        await w.ocean.signal(idle, deliver_at=w.clock.now() + 10)
        assert [hold.code for hold in (await w.ocean.explain(idle)).holds] == ["waiting"]
        w.clock.advance(10)
        assert [hold.code for hold in (await w.ocean.explain(idle)).holds] == ["key_full"]
        await w.ocean.pause_run(idle)
        assert [hold.code for hold in (await w.ocean.explain(idle)).holds] == ["paused"]
        await w.ocean.pause_clog("c")
        await w.ocean.resume_run(idle)
        assert [hold.code for hold in (await w.ocean.explain(idle)).holds] == ["clog_paused", "key_full"]


async def test_explain_and_the_claim_agree_on_every_run() -> None:
    clog = Script(Continue(), Retry("no"), Ok(), Wait(for_ms=5), Done())
    async with stage(clog) as w:
        runs = [await start(w, concurrency_keys=keys) for keys in (["x"], ["x", "y"], ["y"], ["y", "x"], [])]
        for _ in range(30):
            for run in runs:
                explained = await w.ocean.explain(run)
                poked = await w.ocean.advance(run_id=run, max_ticks=1)
                assert explained.is_claimable == bool(poked.outcomes), explained
            await w.ocean.advance(max_ticks=1)
            w.clock.advance(400)


async def test_a_run_logs_once_per_wait_that_it_is_parked() -> None:
    clog = Script(Ok())
    async with stage(clog) as w:
        holder = await start(w, concurrency_keys=[Key("k", "run")])
        await w.drain()
        waiter = await start(w, concurrency_keys=["k"])
        await w.ocean.signal(waiter, 1)
        await w.ocean.pause_run(waiter)
        await w.ocean.resume_run(waiter)
        await w.drain()
        assert (await types(w, waiter)).count("run.parked") == 1
        await w.ocean.cancel_run(holder)
        await w.drain()
        assert (await look(w, waiter)).status is RunStatus.IDLE
        other = await start(w, concurrency_keys=[Key("k", "run")])
        await w.drain()
        await w.ocean.signal(waiter, 2)
        (first, second) = await log(w, waiter, "run.parked")
        assert first.payload == second.payload == {"key": "k", "limit": 1, "status": "pending"}
        await w.ocean.cancel_run(other)


async def test_a_last_tick_waits_for_its_key_too() -> None:
    clog = Script(Done(), ends=(Ok(),))
    async with stage(clog) as w:
        await start(w, concurrency_keys=["k"])
        held = await die_holding(w, clog)
        waiter = await start_idle(w, concurrency_keys=["k"])
        await w.ocean.cancel_run(waiter)
        await w.drain()
        assert clog.ends == []
        assert (await look(w, waiter)).parked_on == "k"
        await w.store.give_back(held.lock, held.tick)
        await w.drain()
        assert [seen.reason for seen in clog.ends] == ["cancel"]
        assert (await look(w, waiter)).status is RunStatus.FAILED


async def test_children_and_their_parent_share_a_key_without_blocking_each_other() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.reason == "created" and tick.input == "parent":
            for _ in range(2):
                await tick.create_run(clog_id="c", input="child", notify_parent=True, concurrency_keys=["k"])
            return Ok()
        return Done() if tick.input == "child" or len(clog.seen) >= 5 else Ok()

    clog = Script(act)
    async with stage(clog) as w:
        parent = await start(w, "parent", concurrency_keys=["k"])
        await w.drain()
        assert (await look(w, parent)).status is RunStatus.DONE
        assert len(clog.seen) == 5


async def test_a_tick_that_runs_out_of_time_frees_its_slot() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.attempt == 0 and tick.input == "slow":
            w.clock.advance(60_000)
            await anyio.sleep_forever()
        return Done()

    clog = Script(act, tick_ms=1_000)
    async with stage(clog) as w:
        slow = await start(w, "slow", concurrency_keys=["k"], retry=RetryPolicy(max_attempts=1))
        quick = await start(w, "quick", concurrency_keys=["k"])
        await w.drain()
        assert [(await look(w, run)).status for run in (slow, quick)] == [RunStatus.FAILED, RunStatus.DONE]


async def test_a_rate_starts_a_run_and_its_key_lets_it_work() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        rate: dict[str, Any] = {"rate_key": "r", "rate_limit": 1, "rate_per_ms": 100}
        runs = [await start(w, concurrency_keys=["k"], **rate) for _ in range(3)]
        await die_holding(w, clog)
        assert [hold.code for hold in (await w.ocean.explain(runs[1])).holds] == ["rate_limited"]
        w.clock.advance(100)
        await w.drain()
        assert (await _hold(w, runs[1]))[1] == runs[0]
        w.clock.advance(29_900)
        await w.drain()
        assert {(await look(w, run)).status for run in runs} == {RunStatus.DONE}


async def test_a_poke_that_reports_nothing_due_leaves_no_callable_run() -> None:
    """After a poke that returns `due_now` = 0, no run is left that could have been called."""
    clog = Script(Continue(), Ok(), Wait(for_ms=10), Done())
    other = Clog("d")

    @other.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Done() if tick.number == 2 else Continue()

    async with stage(clog, other) as w:
        await w.ocean.set_limit("a", 2)
        names = ["a", "b", "c", "d"]
        for number in range(60):
            keys = [Key(names[(number + i) % 4], "run" if number % 7 == 0 else "tick") for i in range(number % 4)]
            await start(w, clog_id="cd"[number % 2], concurrency_keys=keys, priority=number % 3)
        for _ in range(10):
            await w.drain()
            w.clock.advance(10)
        for run in (await w.ocean.list_runs(status="idle", limit=1_000)).runs:
            await w.ocean.signal(run.run_id)
        await w.drain()
        left = [run for run in (await w.ocean.list_runs(limit=1_000)).runs if not run.is_ended]
        assert left == []
        assert [info.key for info in await w.ocean.list_keys()] == ["a"]


async def test_all_parked_runs_are_called_in_one_drain_after_the_limit_is_raised() -> None:
    clog = Script(Done())
    async with stage(clog) as w:
        await w.ocean.set_limit("k", 0)
        runs = [await start(w, concurrency_keys=["k"]) for _ in range(250)]
        assert await w.drain() == []
        await w.ocean.set_limit("k", 2)
        assert {result.run_id for result in await w.drain()} == set(runs)
        assert len(clog.seen) == 250
