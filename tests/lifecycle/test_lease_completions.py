"""`complete_work`: every outcome, the row, the same result for a repeat, and a refusal for a late worker."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import (
    CLEAR,
    Continue,
    Done,
    Failed,
    InvalidValue,
    Lease,
    LeaseCompleted,
    LeaseLost,
    Ok,
    Outcome,
    Retry,
    RetryPolicy,
    RowChanged,
    RunStatus,
    Wait,
    WorkDone,
)
from ocean.state.values import MAX_BYTES, MAX_DEPTH
from ocean.testing import World
from tests.lifecycle.acting import dump, log, look, stage, start, types
from tests.lifecycle.outside import LEASE_MS, lease, leases, outside, row_of

pytestmark = pytest.mark.anyio

STATUSES: list[tuple[Outcome, str, RunStatus]] = [
    (Ok(), "ok", RunStatus.IDLE),
    (Done({"n": 1}), "done", RunStatus.DONE),
    (Continue(2), "continue", RunStatus.PENDING),
    (Wait(for_ms=500), "wait", RunStatus.WAITING),
    (Retry("not yet"), "retry", RunStatus.PENDING),
    (Failed("never"), "failed", RunStatus.FAILED),
]
OUTCOMES = pytest.mark.parametrize(("outcome", "name", "status"), STATUSES, ids=[each[1] for each in STATUSES])


@OUTCOMES
async def test_every_outcome_is_committed_as_if_the_tick_had_been_called_here(
    outcome: Outcome, name: str, status: RunStatus
) -> None:
    async with stage(outside()) as w:
        run_id = await start(w, 1, clog_id="e")
        taken = await lease(w)
        w.clock.advance(100)
        done = await w.ocean.complete_work(taken.lease_id, outcome, events=[("made", {"n": 1})])
        assert done == WorkDone(run_id, 1, name, status)
        run = await look(w, run_id)
        assert (run.status, run.locked_by, run.lock_expires_at) == (status, None, None)
        [ended] = [e for e in await log(w, run_id) if e.type in ("tick.committed", "run.retrying")]
        facts = {key: ended.payload[key] for key in ("claimed_at", "epoch", "instance", "version")}
        assert facts == {"claimed_at": w.clock.now() - 100, "epoch": 1, "instance": "w1", "version": "1"}
        made = [(e.tick, e.call, e.clog_id, e.payload) for e in await log(w, run_id, "made")]
        assert made == ([] if name == "retry" else [(1, 1, "e", {"n": 1})])
        match outcome:
            case Done():
                assert (await w.ocean.result(run_id), run.pending_count) == ({"n": 1}, 0)
            case Continue():
                again = await lease(w)
                assert (again.tick, again.reason, again.input) == (2, "continue", 2)
            case Wait():
                assert run.wake_at == w.clock.now() + 500
            case Retry():
                assert (run.attempt, run.wake_at, run.pending_count) == (1, w.clock.now() + 1_000, 1)
                assert await leases(w) == []
                w.clock.advance(1_000)
                again = await lease(w)
                assert (again.tick, again.call, again.input, again.run.attempt) == (1, 2, 1, 1)
            case Failed():
                assert run.error == {"code": "failed", "message": "never", "details": None}


async def test_a_retry_may_name_its_own_delay_and_the_last_one_ends_the_run() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e", retry=RetryPolicy(max_attempts=2))
        await w.ocean.complete_work((await lease(w)).lease_id, Retry("a", after_ms=7))
        assert (await look(w, run_id)).wake_at == w.clock.now() + 7
        w.clock.advance(7)
        done = await w.ocean.complete_work((await lease(w)).lease_id, Retry({"code": "quota", "message": "b"}))
        assert (done.outcome, done.status) == ("retry", RunStatus.FAILED)
        error = (await look(w, run_id)).error
        assert error is not None
        assert error["code"] == "quota"


@pytest.mark.parametrize(
    ("row", "is_there", "value"),
    [({"a": [1]}, True, {"a": [1]}), (CLEAR, False, None), (None, True, None)],
    ids=["written", "cleared", "null"],
)
@pytest.mark.parametrize("had_row", [False, True], ids=["absent before", "there before"])
async def test_a_completion_writes_clears_or_nulls_the_row(row: Any, is_there: bool, value: Any, had_row: bool) -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        if had_row:
            await w.ocean.call_clog(run_id=run_id, method="put", payload={"old": 1})
        taken = await lease(w)
        assert (taken.row, taken.row_version > 0) == ({"old": 1} if had_row else None, had_row)
        await w.ocean.complete_work(taken.lease_id, Ok(), row=row)
        assert await row_of(w, run_id) == [is_there, value]


async def test_a_completion_without_a_row_leaves_the_row_as_it_is() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.call_clog(run_id=run_id, method="put", payload="theirs")
        await w.ocean.complete_work(taken.lease_id, Done())
        assert await row_of(w, run_id) == [True, "theirs"]


@pytest.mark.parametrize("method", ["put", "wipe"])
async def test_a_row_that_a_direct_call_changed_is_a_conflict_with_the_current_version(method: str) -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        await w.ocean.call_clog(run_id=run_id, method="put", payload={"n": 1})
        taken = await lease(w)
        await w.ocean.call_clog(run_id=run_id, method=method, payload={"n": 2})
        before = await dump(w)
        with pytest.raises(RowChanged, match=f"row of run {run_id}.*complete with its `row_version`") as refused:
            await w.ocean.complete_work(taken.lease_id, Done(), row={"n": 10}, events=[("made", 1)])
        assert await dump(w) == before
        details = refused.value.details
        assert details["row"] == ({"n": 2} if method == "put" else None)
        assert (details["row_version"] > taken.row_version) == (method == "put")
        with pytest.raises(RowChanged):
            await w.ocean.complete_work(taken.lease_id, Done(), row={"n": 3}, row_version=taken.row_version)
        done = await w.ocean.complete_work(
            taken.lease_id, Done(), row={"n": 12}, row_version=details["row_version"], events=[("made", 1)]
        )
        assert done.status is RunStatus.DONE
        assert await row_of(w, run_id) == [True, {"n": 12}]
        assert len(await log(w, run_id, "made")) == 1


async def test_a_retry_discards_the_row_so_it_cannot_conflict() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.call_clog(run_id=run_id, method="put", payload="theirs")
        done = await w.ocean.complete_work(taken.lease_id, Retry("no"), row="mine", events=[("made", 1)])
        assert done.outcome == "retry"
        assert await row_of(w, run_id) == [True, "theirs"]
        assert await log(w, run_id, "made") == []


@OUTCOMES
async def test_a_repeated_completion_gets_the_first_result_and_changes_nothing(
    outcome: Outcome, name: str, status: RunStatus
) -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        arguments: dict[str, Any] = {"events": [("made", {"a": 1, "b": 2})], "row": {"x": 1, "y": 2}}
        first = await w.ocean.complete_work(taken.lease_id, outcome, **arguments)
        before = await dump(w)
        assert await w.ocean.complete_work(taken.lease_id, outcome, **arguments) == first
        other_order: dict[str, Any] = {"events": [["made", {"b": 2, "a": 1}]], "row": {"y": 2, "x": 1}}
        assert await w.ocean.complete_work(taken.lease_id, outcome, **other_order) == first
        assert await dump(w) == before

        w.clock.advance(LEASE_MS + 60_000)
        await w.ocean.signal(run_id) if status is RunStatus.IDLE else None
        await leases(w, worker_id="w2")
        if not (await look(w, run_id)).is_ended:
            await w.ocean.cancel_run(run_id)
        before = await dump(w)
        assert await w.ocean.complete_work(taken.lease_id, outcome, **arguments) == first
        assert await dump(w) == before


async def test_the_result_outlives_the_log_and_is_deleted_with_the_run() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        first = await w.ocean.complete_work(taken.lease_id, Done(), row=1)
        w.clock.advance(1_000)
        await w.ocean.sweep(events_older_than_ms=0, requests_older_than_ms=0)
        assert [event.type for event in await log(w, run_id)] == ["reset"]
        assert await w.ocean.complete_work(taken.lease_id, Done(), row=1) == first
        await w.ocean.sweep(runs_older_than_ms=0)
        with pytest.raises(LeaseLost, match="no such lease"):
            await w.ocean.complete_work(taken.lease_id, Done(), row=1)


BASE: dict[str, Any] = {"outcome": Done(1), "events": [("made", 1)], "row": {"n": 1}}


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({}, {"outcome": Done(2)}),
        ({}, {"outcome": Ok()}),
        ({"outcome": Done(1)}, {"outcome": Continue(1)}),
        ({}, {"events": []}),
        ({}, {"events": [("made", 2)]}),
        ({}, {"row": {"n": 2}}),
        ({"row": None}, {"row": CLEAR}),
        ({"row": CLEAR}, {"row": None}),
        ({"outcome": Retry("a")}, {"outcome": Retry("a", after_ms=1)}),
        ({"outcome": Retry("a")}, {"outcome": Failed("a")}),
        ({"outcome": Wait(for_ms=5)}, {"outcome": Wait(until=5)}),
    ],
    ids=lambda arguments: "-".join(f"{value}" for value in arguments.values()) or "base",
)
async def test_another_completion_of_the_same_lease_is_refused(first: dict[str, Any], other: dict[str, Any]) -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.complete_work(taken.lease_id, **(BASE | first))
        before = await dump(w)
        with pytest.raises(LeaseCompleted, match=f"run {run_id} was already completed") as refused:
            await w.ocean.complete_work(taken.lease_id, **(BASE | first | other))
        assert (refused.value.code, refused.value.http_status) == ("lease_completed", 409)
        assert await dump(w) == before


async def test_a_row_left_alone_is_another_completion_than_a_row_of_null() -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.complete_work(taken.lease_id, Ok())
        with pytest.raises(LeaseCompleted):
            await w.ocean.complete_work(taken.lease_id, Ok(), row=None)


async def _taken_back(w: World, run_id: str) -> None:
    w.clock.advance(LEASE_MS)
    await w.ocean.advance()


async def _leased_to_another(w: World, run_id: str) -> None:
    w.clock.advance(LEASE_MS)
    await lease(w, worker_id="w2")


async def _leased_to_itself_again(w: World, run_id: str) -> None:
    w.clock.advance(LEASE_MS)
    await lease(w)


async def _done_by_another(w: World, run_id: str) -> None:
    w.clock.advance(LEASE_MS)
    await w.ocean.complete_work((await lease(w, worker_id="w2")).lease_id, Done("theirs"))


async def _cancelled(w: World, run_id: str) -> None:
    await w.ocean.cancel_run(run_id)


async def _past_its_deadline(w: World, run_id: str) -> None:
    w.clock.advance(LEASE_MS - 1)
    await w.ocean.advance()
    assert (await look(w, run_id)).status is RunStatus.FAILED


async def _deleted(w: World, run_id: str) -> None:
    await w.ocean.delete_run(run_id)


async def _deleted_and_made_again(w: World, run_id: str) -> None:
    await w.ocean.delete_run(run_id)
    await start(w, clog_id="e", run_id=run_id)
    assert (await lease(w)).run_id == run_id


LOST = [
    _taken_back,
    _leased_to_another,
    _leased_to_itself_again,
    _done_by_another,
    _cancelled,
    _past_its_deadline,
    _deleted,
    _deleted_and_made_again,
]


async def _complete(w: World, taken: Lease) -> None:
    await w.ocean.complete_work(taken.lease_id, Done("late"), row={"late": 1}, events=[("late", 1)])


async def _fail(w: World, taken: Lease) -> None:
    await w.ocean.complete_work(taken.lease_id, Retry("late"))


async def _renew(w: World, taken: Lease) -> None:
    await w.ocean.renew_work(taken.lease_id, events=[("late", 1)])


@pytest.mark.parametrize("late", [_complete, _fail, _renew], ids=["complete", "retry", "renew"])
@pytest.mark.parametrize("lose", LOST, ids=lambda lose: lose.__name__.strip("_"))
async def test_a_late_worker_gets_lease_lost_and_changes_no_row_of_any_table(
    lose: Callable[[World, str], Awaitable[None]], late: Callable[[World, Lease], Awaitable[None]]
) -> None:
    async with stage(outside()) as w:
        run_id = (
            await start(w, clog_id="e", run_id="r", deadline_at=w.clock.now() + LEASE_MS - 1)
            if (lose is _past_its_deadline)
            else await start(w, clog_id="e", run_id="r")
        )
        taken = await lease(w)
        await lose(w, run_id)
        before = await dump(w)
        for _ in range(2):
            with pytest.raises(LeaseLost) as refused:
                await late(w, taken)
            assert (refused.value.code, refused.value.http_status) == ("lease_lost", 409)
        assert await dump(w) == before
        assert "late" not in await types(w, run_id)


async def test_an_expired_lease_that_was_not_taken_back_still_belongs_to_its_worker() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        w.clock.advance(LEASE_MS * 3)
        assert await w.ocean.renew_work(taken.lease_id) == w.clock.now() + LEASE_MS
        assert (await w.ocean.advance()).outcomes == ()
        assert (await look(w, run_id)).status is RunStatus.ACTIVE
        w.clock.advance(LEASE_MS * 3)
        assert (await w.ocean.complete_work(taken.lease_id, Done())).status is RunStatus.DONE
        assert (await look(w, run_id)).attempt == 0


async def test_a_completed_lease_is_over_for_renewals_too() -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.complete_work(taken.lease_id, Continue())
        with pytest.raises(LeaseLost, match="no longer leased to w1"):
            await w.ocean.renew_work(taken.lease_id)


@pytest.mark.parametrize("forged", ["lease_x", "r", "w1", "default", "r:1"])
async def test_a_lease_id_that_was_never_issued_is_refused(forged: str) -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e", run_id="r")
        taken = await lease(w)
        before = await dump(w)
        for guess in (forged, taken.lease_id[:-1], taken.lease_id.upper(), f"{taken.lease_id} "):
            with pytest.raises(LeaseLost, match="no such lease"):
                await w.ocean.complete_work(guess, Done())
            with pytest.raises(LeaseLost, match="no such lease"):
                await w.ocean.renew_work(guess)
        assert await dump(w) == before


async def test_the_stored_hash_of_a_lease_completes_nothing() -> None:
    async with stage(outside()) as w:
        run_id = await start(w, clog_id="e")
        taken = await lease(w)
        await w.ocean.renew_work(taken.lease_id, events=[("said", 1)])
        [[lease_hash, *_]] = (await dump(w))["ocean_leases"]
        with pytest.raises(LeaseLost):
            await w.ocean.complete_work(lease_hash, Done())
        await w.ocean.complete_work(taken.lease_id, Done(), row=1, events=[("said", 2)])
        secret = taken.lease_id.removeprefix("lease_")
        assert len(secret) >= 32
        assert secret not in repr(await dump(w)), "only a hash of it is kept"
        assert secret not in repr(await log(w, run_id))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outcome": None}, "outcome must be Ok"),
        ({"outcome": "done"}, "outcome must be Ok"),
        ({"outcome": Done(object())}, "Done.output must be JSON, got a value of type object"),
        ({"outcome": Continue({1: 2})}, "Continue.input must have strings as keys, got 1"),
        ({"events": "made"}, "events must be a list"),
        ({"events": {"made": 1}}, "events must be a list"),
        ({"events": 7}, "events must be a list"),
        ({"events": ["ab"]}, "each of events must be"),
        ({"events": [("made",)]}, "each of events must be"),
        ({"events": [("made", 1, 2)]}, "each of events must be"),
        ({"events": [("", 1)]}, "event's type"),
        ({"events": [(3, 1)]}, "event's type"),
        ({"events": [("run.done", 1)]}, "must not be one of the kernel's"),
        ({"events": [("tick", 1)]}, "must not be one of the kernel's"),
        ({"events": [("fine", 1), ("made", {1})]}, "payload must be JSON, got a value of type set"),
        ({"row": float("nan")}, "row must be a finite number, got nan"),
        ({"row": b"x"}, "row must be JSON, got a value of type bytes"),
        ({"row": 1, "row_version": -1}, "row_version must be an integer"),
        ({"row": 1, "row_version": True}, "row_version must be an integer"),
        ({"lease_id": ""}, "lease_id must be"),
        ({"lease_id": 5}, "lease_id must be"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value)[:40],
)
async def test_a_completion_that_cannot_be_stored_is_refused_by_name_and_the_lease_stays_valid(
    arguments: dict[str, Any], message: str
) -> None:
    async with stage(outside()) as w:
        await start(w, clog_id="e")
        taken = await lease(w)
        before = await dump(w)
        whole: dict[str, Any] = {"lease_id": taken.lease_id, "outcome": Done()} | arguments
        with pytest.raises(InvalidValue, match=message):
            await w.ocean.complete_work(**whole)
        assert await dump(w) == before
        assert (await w.ocean.complete_work(taken.lease_id, Done())).status is RunStatus.DONE


async def test_an_output_as_large_and_as_deep_as_a_handlers_may_be_completes() -> None:
    deep: Any = 0
    for _ in range(MAX_DEPTH):
        deep = [deep]
    async with stage(outside()) as w:
        for output in ("x" * (MAX_BYTES - 2), deep):
            run_id = await start(w, clog_id="e")
            await w.ocean.complete_work((await lease(w)).lease_id, Done(output))
            assert await w.ocean.result(run_id) == output
