"""The last tick of a run that the kernel ends: what a call in progress may still store, attempts, `retry_end`."""

from typing import Any

import pytest

from ocean.kernel.run_query import run_filter
from ocean.kernel.store import Store
from ocean.state.attributes import Within
from ocean.state.backoff import RetryPolicy
from ocean.state.effects import Effects, NewEvent
from ocean.state.errors import InvalidValue, LockLost, RunNotIncomplete
from ocean.state.outcomes import Done, Ok, Retry
from ocean.state.records import Claim, ClogRecord, RunCount, RunInfo, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    LOCK_MS,
    NO_CLOGS,
    OTHER_CLOG,
    a_run,
    an_ask,
    claim,
    claimed_run,
    commit,
    ended_run,
    events,
    pending,
    the_run,
    types,
)

pytestmark = pytest.mark.anyio

GRACE_MS = 5_000


async def register(store: Store, **options: Any) -> None:
    options = dict[str, Any](end_retry=RetryPolicy(max_attempts=2), cancel_grace_ms=GRACE_MS) | options
    await store.register_clogs([ClogRecord(CLOG, "1", has_on_end=True, **options)])


async def last_tick(store: Store, **options: Any) -> Claim:
    """Cancel a run that is not at work, and claim it for its last tick."""
    await register(store, **options)
    await pending(store)
    await store.cancel_run("r", "enough", None, None)
    last = await claim(store)
    assert last.reason == "cancel"
    return last


async def info(store: Store) -> RunInfo:
    run = await store.get_run("r")
    assert run is not None
    return run


async def test_a_call_whose_run_is_cancelled_may_store_steps_and_stream_until_the_grace_time_is_over(
    store: Store, clock: ManualClock
) -> None:
    await register(store)
    held = await claimed_run(store)
    ending = await store.cancel_run("r", "enough", None, None)
    assert (ending.status, ending.ending, ending.due_at) == ("active", "cancel", clock.now() + GRACE_MS)
    assert await store.store_step(held.lock, held.tick, "charge", "1") == "1"
    await store.append_streamed(held.lock, held.tick, held.call, [NewEvent("word", "1", CLOG)])
    before = await events(store, "r")
    with pytest.raises(LockLost, match="is ending"):
        await commit(store, held, Done(1), Effects(events=[NewEvent("never", "1", CLOG)]))
    assert await events(store, "r") == before
    clock.advance(GRACE_MS - 1)
    assert await store.claim_due(an_ask()) == []
    clock.advance(1)
    last = await claim(store)
    assert (last.reason, last.tick, last.call, last.inputs) == ("cancel", held.tick + 1, 1, ())
    with pytest.raises(LockLost):
        await store.store_step(held.lock, held.tick, "refund", "1")
    assert await store.read_step("r", held.tick, "charge") == "1"
    await commit(store, last)
    assert (await info(store)).status == RunStatus.FAILED


async def test_a_call_that_stops_before_the_grace_time_is_over_makes_the_last_tick_due(store: Store) -> None:
    await register(store)
    held = await claimed_run(store)
    await store.cancel_run("r", None, None, None)
    assert await store.give_back(held.lock, held.tick) is RunStatus.PENDING
    assert (await claim(store)).reason == "cancel"
    assert (await the_run(store)).attempt == 0


async def test_the_last_tick_of_a_crashed_process_begins_when_its_lock_has_expired(
    store: Store, clock: ManualClock
) -> None:
    await register(store, cancel_grace_ms=LOCK_MS + 5)
    await claimed_run(store)
    await store.cancel_run("r", None, None, None)
    clock.advance(LOCK_MS - 1)
    assert await store.claim_due(an_ask()) == []
    clock.advance(1)
    last = await claim(store)
    assert (last.reason, last.call, last.run.attempt, last.run.end_attempt) == ("cancel", 1, 0, 0)


async def test_a_renewal_reports_that_the_run_is_ending(store: Store, clock: ManualClock) -> None:
    await register(store)
    held = await claimed_run(store)
    other = await claimed_run(store, "other", clog_id=OTHER_CLOG)
    await store.cancel_run("r", None, None, None)
    assert store.renew_locks([held.lock, other.lock]) == (set(), {held.lock})
    assert (await the_run(store)).stop_by == clock.now() + GRACE_MS
    assert (await info(store)).due_at == clock.now() + GRACE_MS


async def test_without_a_grace_time_a_call_loses_its_lock_at_once(store: Store) -> None:
    await register(store, cancel_grace_ms=0)
    held = await claimed_run(store)
    assert (await store.cancel_run("r", None, None, None)).status == RunStatus.PENDING
    with pytest.raises(LockLost):
        await store.store_step(held.lock, held.tick, "charge", "1")


async def test_a_deadline_lets_a_step_in_flight_finish(store: Store, clock: ManualClock) -> None:
    await register(store)
    held = await claimed_run(store, deadline_at=clock.now() + 10)
    clock.advance(10)
    assert await store.claim_due(NO_CLOGS) == []
    assert ((await the_run(store)).ending, (await the_run(store)).status) == ("deadline", "active")
    await store.store_step(held.lock, held.tick, "charge", "1")


async def test_a_last_tick_that_fails_is_called_again_with_its_number_and_its_steps(
    store: Store, clock: ManualClock
) -> None:
    last = await last_tick(store, end_retry=RetryPolicy(max_attempts=3, backoff_ms=700))
    await store.store_step(last.lock, last.tick, "refund", "1")
    await commit(store, last, Retry("no line"))
    run = await info(store)
    assert (run.status, run.ending, run.attempt, run.end_attempt) == ("pending", "cancel", 0, 1)
    assert run.error is not None
    assert run.error["message"] == "enough"
    clock.advance(699)
    assert await store.claim_due(an_ask()) == []
    clock.advance(1)
    again = await claim(store)
    assert (again.tick, again.call, again.reason, again.run.end_attempt) == (last.tick, 2, "cancel", 1)
    assert await store.read_step("r", last.tick, "refund") == "1"
    await commit(store, again)
    run = await info(store)
    assert (run.status, run.end_incomplete) == ("failed", False)


async def test_a_last_tick_that_crashes_is_called_again(store: Store, clock: ManualClock) -> None:
    last = await last_tick(store)
    clock.advance(LOCK_MS)
    assert await store.claim_due(NO_CLOGS) == []
    again = await claim(store)
    assert (again.tick, again.call, again.run.end_attempt, again.run.attempt) == (last.tick, 2, 1, 0)
    await commit(store, again)
    assert not (await info(store)).end_incomplete


@pytest.mark.parametrize("how", ["retry", "crash", "give back"])
async def test_a_run_whose_last_tick_has_no_attempt_left_ends_incomplete(
    store: Store, clock: ManualClock, how: str
) -> None:
    last = await last_tick(store, end_retry=RetryPolicy(max_attempts=2, backoff_ms=0))
    await commit(store, last, Retry("no line"))
    last = await claim(store)
    if how == "retry":
        await commit(store, last, Retry("still no line"))
    elif how == "crash":
        clock.advance(LOCK_MS)
        assert await store.claim_due(NO_CLOGS) == []
    for _ in range(3 if how == "give back" else 0):
        await store.give_back(last.lock, last.tick)
        if not (await info(store)).is_ended:
            last = await claim(store)
    run = await info(store)
    assert (run.status, run.end_incomplete, run.end_attempt, run.ending) == ("failed", True, 2, None)
    assert run.error is not None
    assert (run.error["code"], run.error["message"]) == ("cancelled", "enough")
    assert (await types(store, "r"))[-3:] == ["run.end_incomplete", "signal.undelivered", "run.failed"]
    event = next(event for event in await events(store, "r") if event.type == "run.end_incomplete")
    assert (event.payload["reason"], event.payload["attempts"]) == ("cancel", 2)
    code = {"retry": "failed", "crash": "crashed", "give back": "given_back"}[how]
    assert event.payload["error"]["code"] == code


async def test_a_crash_on_the_last_attempt_of_the_last_tick_of_a_deadline_is_an_attempt(
    store: Store, clock: ManualClock
) -> None:
    await register(store, end_retry=RetryPolicy(max_attempts=1))
    await pending(store, deadline_at=clock.now() + 10)
    clock.advance(10)
    assert (await claim(store)).reason == "deadline"
    clock.advance(LOCK_MS)
    assert await store.claim_due(NO_CLOGS) == []
    run = await info(store)
    assert (run.end_incomplete, run.end_attempt, run.error and run.error["code"]) == (True, 1, "deadline_exceeded")
    event = next(event for event in await events(store, "r") if event.type == "run.end_incomplete")
    assert (event.payload["attempts"], event.payload["error"]["code"]) == (1, "crashed")


async def incomplete_run(store: Store, **given: Any) -> Claim:
    await register(store, end_retry=RetryPolicy(max_attempts=1))
    await pending(store, **given)
    await store.cancel_run("r", "enough", None, None)
    last = await claim(store)
    await store.store_step(last.lock, last.tick, "refund", "1")
    await commit(store, last, Retry("no line"))
    assert (await info(store)).end_incomplete
    return last


async def test_retry_end_calls_the_last_tick_again_with_its_number_and_its_steps(store: Store) -> None:
    last = await incomplete_run(store)
    run = await store.retry_end("r", "ada", None)
    assert (run.status, run.ending, run.end_incomplete, run.ended_at) == ("pending", "cancel", False, None)
    assert (await events(store, "r"))[-1].actor == "ada"
    again = await claim(store)
    assert (again.tick, again.call, again.reason, again.run.end_attempt) == (last.tick, 2, "cancel", 0)
    assert await store.read_step("r", last.tick, "refund") == "1"
    await commit(store, again, Ok())
    run = await info(store)
    assert (run.status, run.end_incomplete, run.error and run.error["message"]) == ("failed", False, "enough")


async def test_a_parent_is_not_notified_again_after_retry_end(store: Store) -> None:
    await store.create_run(a_run("mother", clog_id=OTHER_CLOG), None)
    await incomplete_run(store, parent_run_id="mother", notify_parent=True)
    assert (await types(store, "mother")).count("run.signalled") == 1
    await store.retry_end("r", None, None)
    await commit(store, await claim(store, "r"))
    assert (await types(store, "mother")).count("run.signalled") == 1


async def test_retry_end_is_refused_for_any_other_run(store: Store) -> None:
    await register(store)
    await ended_run(store, "r", Done(1))
    before = await events(store)
    with pytest.raises(RunNotIncomplete, match="r must have ended without its last tick"):
        await store.retry_end("r", None, None)
    assert await events(store) == before


async def incomplete(store: Store, clock: ManualClock) -> list[str]:
    """Let three of four runs end incomplete, one after another."""
    await register(store, end_retry=RetryPolicy(max_attempts=1))
    for number in range(4):
        await pending(store, f"r{number}", session_id=f"s{number % 2}", attributes={"n": number})
        await store.cancel_run(f"r{number}", "enough", None, None)
        last = await claim(store)
        await commit(store, last, Ok() if number == 1 else Retry("no"))
        clock.advance(1)
    return ["r0", "r2", "r3"]


async def listed(store: Store, limit: int = 100, newest_first: bool = False, **query: Any) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await store.list_runs(run_filter(**query), limit, cursor, newest_first)
        found += [run.run_id for run in page.runs]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_the_runs_that_ended_incomplete_are_listed_and_counted(store: Store, clock: ManualClock) -> None:
    began_at = clock.now()
    runs = await incomplete(store, clock)
    for limit in (1, 2, 100):
        assert await listed(store, limit, end_incomplete=True) == runs
        assert await listed(store, limit, True, end_incomplete=True) == runs[::-1]
    assert await listed(store, end_incomplete=False) == ["r1"]
    for query, wanted in (
        ({"session_id": "s0"}, ["r0", "r2"]),
        ({"clog_id": CLOG, "status": "failed"}, runs),
        ({"clog_id": OTHER_CLOG}, []),
        ({"created_from": began_at + 1}, ["r2", "r3"]),
        ({"ended_from": began_at + 3}, ["r3"]),
        ({"clog_id": CLOG, "attributes": {"n": [1, 2]}}, ["r2"]),
        ({"clog_id": CLOG, "attributes": {"n": Within(gt=0)}}, ["r2", "r3"]),
    ):
        assert await listed(store, end_incomplete=True, **query) == wanted, query
    assert await store.count_runs(run_filter(end_incomplete=True), 2) == RunCount(2, True)
    await store.retry_end("r2", None, None)
    assert await listed(store, end_incomplete=True) == ["r0", "r3"]


async def test_end_incomplete_must_be_a_flag() -> None:
    with pytest.raises(InvalidValue, match="end_incomplete must be True or False, got 1"):
        run_filter(end_incomplete=1)  # type: ignore[arg-type]
