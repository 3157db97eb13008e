"""Runs with a delayed start: by a rate, or by a debounce of creations under one key."""

from typing import Any

import pytest

from ocean import (
    Clog,
    Continue,
    DedupeKeyReused,
    Done,
    Failed,
    Hold,
    InvalidValue,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    RunStatus,
    Tick,
)
from ocean.kernel.new_runs import new_run
from ocean.state.values import body_hash
from ocean.testing import World
from tests.lifecycle.acting import Script, dump, log, look, stage, start, start_idle, types

pytestmark = pytest.mark.anyio

TEN_A_SECOND: dict[str, Any] = {"rate_key": "mails", "rate_limit": 10, "rate_per_ms": 1_000}
ONE_A_SECOND: dict[str, Any] = {"rate_key": "mails", "rate_limit": 1, "rate_per_ms": 1_000}
SETTLE: dict[str, Any] = {"dedupe_key": "page-7", "debounce_ms": 500}


def finisher(**options: Any) -> Script:
    return Script(Done(), **options)


async def holds(w: World, run_id: str) -> list[tuple[str, int | None, str | None]]:
    explained = await w.ocean.explain(run_id)
    return [(hold.code, hold.until, hold.holder) for hold in explained.holds]


async def test_a_hundred_runs_at_ten_a_second_start_in_order_and_evenly_after_the_first_ten() -> None:
    started: list[tuple[int, Any]] = []

    async def act(tick: Tick) -> Outcome:
        started.append((tick.now - begin, tick.input))
        return Done()

    async with stage(Script(act)) as w:
        begin = w.clock.now()
        for i in range(100):
            await start(w, i, **TEN_A_SECOND)
        for _ in range(95):
            await w.drain()
            w.clock.advance(100)
        assert started == [(0 if i < 10 else (i - 9) * 100, i) for i in range(100)]


async def test_explain_names_the_rate_and_when_its_token_is_free() -> None:
    async with stage(finisher()) as w:
        first, second = await start(w, **ONE_A_SECOND), await start(w, **ONE_A_SECOND)
        due = w.clock.now() + 1_000
        assert await holds(w, first) == []
        explained = await w.ocean.explain(second)
        message = "waiting for its token of rate 'mails'"
        assert explained.holds == (Hold("rate_limited", message, due, "mails"),)
        assert (explained.status, explained.due_at) == (RunStatus.PENDING, due)
        poked = await w.ocean.advance()
        assert (poked.advanced, poked.due_now, poked.next_wake_at) == (1, 0, due)
        w.clock.advance(999)
        assert (await w.ocean.advance(run_id=second)).advanced == 0
        w.clock.advance(1)
        assert await holds(w, second) == []
        assert (await w.ocean.advance()).advanced == 1


async def test_the_log_records_that_a_run_is_delayed() -> None:
    async with stage(finisher()) as w:
        await start(w, **ONE_A_SECOND)
        run_id = await start(w, **ONE_A_SECOND)
        (created,) = await log(w, run_id, "run.created")
        assert created.payload == {
            "status": "pending",
            "parent_run_id": None,
            "priority": 5,
            "delayed_by": "rate",
            "delay_key": "mails",
            "wake_at": w.clock.now() + 1_000,
        }


async def test_signals_queue_behind_the_creating_input_and_do_not_start_a_run_early() -> None:
    clog = Script(Ok())
    async with stage(clog) as w:
        await start(w, "first", **ONE_A_SECOND)
        run_id = await start(w, "created", **ONE_A_SECOND)
        await w.ocean.signal(run_id, "signalled")
        await w.drain()
        assert clog.bodies == ["first"]
        assert [code for code, _, _ in await holds(w, run_id)] == ["rate_limited"]
        w.clock.advance(1_000)
        await w.drain()
        assert clog.bodies == ["first", "created", "signalled"]


@pytest.mark.parametrize("ends", [None, (Ok(),)], ids=["at once", "with a last tick"])
async def test_a_cancelled_run_does_not_wait_for_its_token_nor_give_it_back(ends: Any) -> None:
    clog = finisher(ends=ends)
    async with stage(clog) as w:
        await start(w, **ONE_A_SECOND)
        cancelled = await start(w, **ONE_A_SECOND)
        await w.ocean.cancel_run(cancelled)
        await w.drain()
        assert (await look(w, cancelled)).status is RunStatus.FAILED
        assert len(clog.ends) == len(ends or ())
        third = await start(w, **ONE_A_SECOND)
        assert await holds(w, third) == [("rate_limited", w.clock.now() + 2_000, "mails")]


async def test_a_deadline_ends_a_run_whose_token_comes_too_late() -> None:
    clog = finisher()
    async with stage(clog) as w:
        await start(w, **ONE_A_SECOND)
        run_id = await start(w, deadline_at=w.clock.now() + 400, **ONE_A_SECOND)
        w.clock.advance(400)
        await w.drain()
        info = await look(w, run_id)
        assert info.error is not None
        assert (info.status, info.error["code"], len(clog.seen)) == (RunStatus.FAILED, "deadline_exceeded", 1)


async def test_a_pause_and_a_rate_both_hold() -> None:
    clog = finisher()
    async with stage(clog) as w:
        await start(w, **ONE_A_SECOND)
        run_id = await start(w, **ONE_A_SECOND)
        await w.ocean.pause_run(run_id)
        assert [code for code, _, _ in await holds(w, run_id)] == ["paused", "rate_limited"]
        await w.ocean.resume_run(run_id)
        assert [code for code, _, _ in await holds(w, run_id)] == ["rate_limited"]
        await w.ocean.pause_run(run_id)
        w.clock.advance(5_000)
        await w.drain()
        assert len(clog.seen) == 1
        await w.ocean.resume_run(run_id)
        await w.drain()
        assert len(clog.seen) == 2


async def test_a_run_is_not_rated_after_its_first_claim() -> None:
    async with stage(Script(Done(), Retry("no"), Continue(), Done())) as w:
        await start(w, **ONE_A_SECOND)
        run_id = await start(w, **ONE_A_SECOND)
        w.clock.advance(1_000)
        await w.drain()
        assert [code for code, _, _ in await holds(w, run_id)] == ["backing_off"]
        w.clock.advance(1_000)
        await w.drain()
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_a_request_that_creates_no_run_takes_no_token() -> None:
    async with stage(finisher()) as w:
        arguments: dict[str, Any] = {"dedupe_key": "once", "request_key": "r"} | ONE_A_SECOND
        first = await start(w, **arguments)
        assert await start(w, **arguments) == first
        assert await start(w, **{**arguments, "request_key": None}) == first
        with pytest.raises(DedupeKeyReused):
            await start(w, "another body", **{**arguments, "request_key": None})
        assert (await w.ocean.take("mails", 0, limit=1, per_ms=1_000)).retry_after_ms == 1_000
        await w.ocean.delete_run(first)
        second = await start(w, **ONE_A_SECOND)
        assert await holds(w, second) == [("rate_limited", w.clock.now() + 1_000, "mails")]


async def test_a_take_from_a_rate_comes_after_the_runs_that_wait_for_it() -> None:
    async with stage(finisher()) as w:
        for _ in range(3):
            await start(w, **ONE_A_SECOND)
        assert (await w.ocean.take("mails", limit=1, per_ms=1_000)).retry_after_ms == 3_000
        await w.ocean.reset_counter("mails")
        assert await holds(w, await start(w, **ONE_A_SECOND)) == []


async def test_children_are_rated_too_with_the_commit_that_creates_them() -> None:
    started: list[tuple[int, Any]] = []

    async def parent(tick: Tick) -> Outcome:
        for i in range(3):
            await tick.create_run(clog_id="child", input=i, **ONE_A_SECOND)
        if tick.call_number == 1:
            return Retry("once more")
        return Done()

    async def child(tick: Tick) -> Outcome:
        started.append((tick.now - begin, tick.input))
        return Done()

    async with stage(Script(parent), Script(child, clog_id="child")) as w:
        await start(w)
        await w.drain()
        w.clock.advance(1_000)
        begin = w.clock.now()
        for _ in range(3):
            await w.drain()
            w.clock.advance(1_000)
        assert started == [(0, 0), (1_000, 1), (2_000, 2)]


async def test_the_tool_creates_rated_runs() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.input == "parent":
            await tick.tools.invoke("ocean.runs.create", {"clog_id": "c", "input": "child", **ONE_A_SECOND})
        return Done()

    async with stage(Script(act)) as w:
        await w.ocean.take("mails", limit=1, per_ms=1_000)
        run_id = await start(w, "parent")
        await w.drain()
        (child,) = (await w.ocean.list_runs(parent_run_id=run_id)).runs
        assert (child.status, child.wake_at) == (RunStatus.PENDING, w.clock.now() + 1_000)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a rate without a limit": ({"rate_key": "k", "rate_per_ms": 5}, "must be given together or not at all"),
    "a limit alone": ({"rate_limit": 5}, "must be given together"),
    "an empty rate key": ({"rate_key": "", "rate_limit": 5, "rate_per_ms": 5}, "rate_key must be a non-empty string"),
    "a rate of nothing": ({"rate_key": "k", "rate_limit": 0, "rate_per_ms": 5}, "rate_limit must be an integer"),
    "a rate in no time": ({"rate_key": "k", "rate_limit": 1, "rate_per_ms": 0}, "rate_per_ms must be an integer"),
    "a debounce of nothing": ({"debounce_ms": 0, "dedupe_key": "k"}, "debounce_ms must be an integer"),
    "a debounce without a key": ({"debounce_ms": 5}, "debounce_ms needs a dedupe_key"),
    "a most without a debounce": ({"debounce_max_ms": 5}, "debounce_max_ms needs debounce_ms"),
    "a most that is less": (SETTLE | {"debounce_max_ms": 499}, "debounce_max_ms must be at least debounce_ms"),
    "a debounce under an id": (SETTLE | {"run_id": "mine"}, "run_id must be left out"),
    "a debounce with dedupe_ms": (SETTLE | {"dedupe_ms": 5}, "dedupe_ms must be left out"),
    "both": (SETTLE | ONE_A_SECOND, "must not be combined"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
async def test_invalid_arguments_are_refused_and_nothing_is_written(arguments: dict[str, Any], message: str) -> None:
    async with stage(finisher()) as w:
        before = await dump(w)
        with pytest.raises(InvalidValue, match=message):
            await start(w, **arguments)
        assert await dump(w) == before


@pytest.mark.parametrize("arguments", [SETTLE, ONE_A_SECOND], ids=["debounce_ms", "rate_key"])
async def test_a_run_without_input_has_no_start_to_delay(arguments: dict[str, Any]) -> None:
    async with stage(finisher()) as w:
        with pytest.raises(InvalidValue, match=r"needs an input: a run without one does not start"):
            await start_idle(w, **arguments)


async def test_a_rate_key_of_another_kind_creates_no_run() -> None:
    async with stage(finisher()) as w:
        await w.ocean.take("mails", limit=5)
        before = await dump(w)
        with pytest.raises(InvalidValue, match="'mails' is of kind total"):
            await start(w, **ONE_A_SECOND)
        assert await dump(w) == before


def test_the_hash_of_a_body_without_the_new_options_is_unchanged() -> None:
    arguments: dict[str, Any] = {"session_id": "s", "clog_id": "c", "input": 1}
    new = new_run(run_id="r", is_id_given=True, actor=None, **arguments)
    stored = {
        **arguments,
        "input": [1],
        "retry": RetryPolicy().as_json(),
        "priority": 5,
        "attributes": {},
        "deadline_at": None,
        "notify_parent": False,
        "on_parent_end": "live",
    }
    assert new.body_hash == body_hash(stored)
    rated = new_run(run_id="r", is_id_given=True, actor=None, **arguments, **ONE_A_SECOND)
    assert rated.body_hash == body_hash(stored | {"rate": ["mails", 1, 1_000]})


async def test_creations_that_follow_one_another_are_one_run_with_the_last_input() -> None:
    clog = finisher()
    async with stage(clog) as w:
        begin = w.clock.now()
        first = await start(w, "v1", actor="ada", **SETTLE)
        for version in ("v2", "v3"):
            w.clock.advance(400)
            assert await start(w, version, actor="bob", **SETTLE) == first
            await w.drain()
        assert await holds(w, first) == [("debounced", begin + 1_300, "page-7")]
        assert clog.seen == []
        w.clock.advance(500)
        await w.drain()
        assert clog.bodies == ["v3"]
        assert (await look(w, first)).status is RunStatus.DONE
        assert await types(w, first) == [
            "run.created",
            "run.debounced",
            "run.debounced",
            "tick.committed",
            "run.done",
        ]
        again = await log(w, first, "run.debounced")
        assert [event.payload for event in again] == [
            {"status": "pending", "wake_at": begin + 900},
            {"status": "pending", "wake_at": begin + 1_300},
        ]
        (committed,) = await log(w, first, "tick.committed")
        assert committed.causation_id == again[-1].id
        assert [each.actor for each in await w.ocean.list_inputs(first)] == ["bob"]


async def test_explain_names_the_key_of_a_debounced_run() -> None:
    async with stage(finisher()) as w:
        explained = await w.ocean.explain(await start(w, **SETTLE))
        message = "debounced: starts unless another creation under key 'page-7' comes first"
        assert explained.holds == (Hold("debounced", message, w.clock.now() + 500, "page-7"),)


async def test_a_debounce_has_an_end_however_many_creations_come() -> None:
    clog = finisher()
    async with stage(clog) as w:
        begin = w.clock.now()
        runs = set()
        for i in range(5):
            runs.add(await start(w, i, debounce_max_ms=1_000, **SETTLE))
            w.clock.advance(300)
            await w.drain()
        assert len(runs) == 2, "the fifth came after the start of the first"
        assert clog.bodies == [3]
        assert [event.ts - begin for event in await log(w, type="tick.committed")] == [1_200]


async def test_a_run_that_is_due_but_not_claimed_yet_is_moved_once_more() -> None:
    clog = finisher()
    async with stage(clog) as w:
        first = await start(w, "v1", debounce_max_ms=2_000, **SETTLE)
        w.clock.advance(700)
        assert await holds(w, first) == []
        assert await start(w, "v2", debounce_max_ms=2_000, **SETTLE) == first
        await w.drain()
        assert clog.seen == []
        w.clock.advance(5_000)
        assert await start(w, "v3", debounce_max_ms=2_000, **SETTLE) == first
        await w.drain()
        assert clog.bodies == ["v3"], "its longest delay was over"


async def test_from_its_first_claim_on_the_key_is_free() -> None:
    async def act(tick: Tick) -> Outcome:
        if tick.input == "v1":
            found.append((await tick.read(keys=["page-7"])).by_key["page-7"])
            found.append(await start(w, "v2", **SETTLE))
        return Ok()

    found: list[Any] = []
    async with stage(Script(act)) as w:
        first = await start(w, "v1", **SETTLE)
        w.clock.advance(500)
        await w.drain()
        no_run, second = found
        assert no_run is None
        assert second != first
        assert await start(w, "v3", **SETTLE) == second
        assert ((await look(w, first)).dedupe_key, (await look(w, second)).dedupe_key) == (None, "page-7")
        w.clock.advance(500)
        await w.drain()
        assert (await look(w, first)).status is RunStatus.IDLE


async def test_the_last_creation_replaces_all_options() -> None:
    async with stage(Script(Failed("no"))) as w:
        late = w.clock.now() + 60_000
        first = await start(w, 1, attributes={"a": 1, "b": 1}, deadline_at=late, priority=2, **SETTLE)
        await start(w, 2, attributes={"b": 2}, retry=RetryPolicy(max_attempts=9), **SETTLE)
        info = await look(w, first)
        assert (info.attributes, info.priority, info.deadline_at, info.max_attempts) == ({"b": 2}, 5, None, 9)
        assert [run.run_id for run in (await w.ocean.list_runs(clog_id="c", attributes={"b": 2})).runs] == [first]
        assert (await w.ocean.list_runs(clog_id="c", attributes={"a": 1})).runs == ()
        await start(w, 3, deadline_at=w.clock.now() + 100, **SETTLE)
        w.clock.advance(100)
        await w.drain()
        assert ((await look(w, first)).error or {})["code"] == "deadline_exceeded"


async def test_signals_to_a_debounced_run_stay_behind_its_input() -> None:
    clog = Script(Ok())
    async with stage(clog) as w:
        run_id = await start(w, "v1", **SETTLE)
        await w.ocean.signal(run_id, "signalled")
        w.clock.advance(100)
        await start(w, "v2", **SETTLE)
        w.clock.advance(400)
        await w.drain()
        assert clog.bodies == []
        w.clock.advance(100)
        await w.drain()
        assert clog.bodies == ["v2", "signalled"]


async def cancel(w: World, run_id: str) -> None:
    await w.ocean.cancel_run(run_id)


async def delete(w: World, run_id: str) -> None:
    await w.ocean.delete_run(run_id)


async def pass_the_deadline(w: World, run_id: str) -> None:
    """Let the deadline pass without a poke."""
    w.clock.advance(300)


@pytest.mark.parametrize("end", [cancel, delete, pass_the_deadline])
@pytest.mark.parametrize("ends", [None, (Ok(),)], ids=["at once", "with a last tick"])
async def test_the_end_of_a_debounced_run_frees_its_key(end: Any, ends: Any) -> None:
    clog = finisher(ends=ends)
    async with stage(clog) as w:
        first = await start(w, "v1", deadline_at=w.clock.now() + 300, **SETTLE)
        await end(w, first)
        second = await start(w, "v2", **SETTLE)
        assert second != first
        await w.drain()
        w.clock.advance(500)
        await w.drain()
        assert clog.bodies == ["v2"]
        assert (await look(w, second)).status is RunStatus.DONE


async def test_a_key_is_debounced_by_all_its_creations_or_by_none() -> None:
    async with stage(finisher()) as w:
        await start(w, "v1", **SETTLE)
        before = await dump(w)
        with pytest.raises(DedupeKeyReused):
            await start(w, "v1", dedupe_key="page-7")
        await start(w, "v1", dedupe_key="page-8")
        with pytest.raises(DedupeKeyReused):
            await start(w, "v1", **SETTLE | {"dedupe_key": "page-8"})
        assert {name for name, rows in (await dump(w)).items() if rows != before[name]} >= {"runs"}
        assert len(await log(w, type="run.debounced")) == 0


async def test_a_repeated_request_moves_nothing() -> None:
    async with stage(finisher()) as w:
        run_id = await start(w, "v1", request_key="r1", **SETTLE)
        due = w.clock.now() + 500
        w.clock.advance(300)
        assert await start(w, "v1", request_key="r1", **SETTLE) == run_id
        assert (await look(w, run_id)).wake_at == due
        await start(w, "v1", request_key="r2", **SETTLE)
        assert (await look(w, run_id)).wake_at == due + 300


async def test_a_creation_refused_for_its_deadline_changes_nothing_of_the_run() -> None:
    async with stage(finisher()) as w:
        await start(w, "v1", **SETTLE)
        before = await dump(w)
        with pytest.raises(InvalidValue, match="must be in the future"):
            await start(w, "v2", deadline_at=w.clock.now(), **SETTLE)
        assert await dump(w) == before


async def test_a_paused_run_is_debounced_behind_its_pause() -> None:
    clog = finisher()
    async with stage(clog) as w:
        run_id = await start(w, "v1", **SETTLE)
        await w.ocean.pause_run(run_id)
        w.clock.advance(1_000)
        assert await start(w, "v2", **SETTLE) == run_id
        assert [code for code, _, _ in await holds(w, run_id)] == ["paused", "debounced"]
        w.clock.advance(500)
        await w.drain()
        await w.ocean.resume_run(run_id)
        await w.drain()
        assert clog.bodies == ["v2"]


async def test_a_tick_cannot_debounce_what_it_creates() -> None:
    async def act(tick: Tick) -> Outcome:
        with pytest.raises(InvalidValue, match="debounce_ms must be left out in a tick"):
            await tick.create_run(clog_id="c", input=1, **SETTLE)
        return Done()

    async with stage(Script(act)) as w:
        run_id = await start(w)
        await w.drain()
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_each_session_and_clog_is_debounced_separately() -> None:
    async with stage(finisher(), Clog("d")) as w:
        runs = {
            await start(w, 1, **SETTLE),
            await start(w, 1, session_id="t", **SETTLE),
            await start(w, 1, clog_id="d", **SETTLE),
        }
        assert len(runs) == 3


async def test_a_run_debounced_again_while_parked_leaves_its_slot_to_others() -> None:
    """The run was woken and is then delayed: its slot goes to the next run."""
    async with stage(Script(Done())) as w:
        await w.ocean.set_limit("a", 0)
        arguments: dict[str, Any] = {"session_id": "s", "clog_id": "c", "dedupe_key": "k", "debounce_ms": 10}
        debounced = await w.ocean.create_run(**arguments, input=1, concurrency_keys=["a"], priority=1)
        w.clock.advance(10)
        await w.drain()
        other = await start(w, 2, concurrency_keys=["a"])
        assert [(await look(w, each)).parked_on for each in (debounced.run_id, other)] == ["a", "a"]
        await w.ocean.set_limit("a", 1)
        assert [(await look(w, each)).parked_on for each in (debounced.run_id, other)] == [None, "a"]
        await w.ocean.create_run(**arguments, input=3, concurrency_keys=["a"], priority=1)
        assert (await look(w, other)).parked_on is None
        await w.drain()
        assert (await look(w, other)).status == "done"
        w.clock.advance(10)
        await w.drain()
        assert (await look(w, debounced.run_id)).status == "done"
