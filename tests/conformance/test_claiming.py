"""`claim_due`: eligible runs, their order, what a claim determines, and which ends any claim executes."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from ocean.kernel.arguments import UNSET
from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed
from ocean.state.backoff import RetryPolicy
from ocean.state.outcomes import Continue, Done, Failed, Ok, Retry, Wait
from ocean.state.records import ClogRecord, Ending, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    LOCK_MS,
    NO_CLOGS,
    OTHER_CLOG,
    TablesOf,
    a_run,
    a_signal,
    an_ask,
    claim,
    claimed_run,
    commit,
    ended_run,
    events,
    pending,
    run_tick,
    statuses,
    the_run,
    types,
)

pytestmark = pytest.mark.anyio

Arrange = Callable[[Store], Awaitable[object]]


async def _idle(store: Store) -> None:
    await store.create_run(a_run(), None)


async def _waiting(store: Store) -> None:
    await pending(store)
    await run_tick(store, "r", Wait(for_ms=10_000))


async def _backing_off(store: Store) -> None:
    await pending(store)
    await run_tick(store, "r", Retry("no"))


async def _locked(store: Store) -> None:
    await claimed_run(store)


async def _paused(store: Store) -> None:
    await pending(store)
    await store.set_run_paused("r", True, None, None)


async def _clog_paused(store: Store) -> None:
    await pending(store)
    await store.set_clog_paused(CLOG, True, None, None)


async def _done(store: Store) -> None:
    await ended_run(store, "r", Done())


async def _failed(store: Store) -> None:
    await ended_run(store, "r", Failed("no"))


HELD = [_idle, _waiting, _backing_off, _locked, _paused, _clog_paused, _done, _failed]


@pytest.mark.parametrize("by_name", [False, True], ids=["any", "named"])
@pytest.mark.parametrize("arrange", HELD, ids=lambda arrange: arrange.__name__.strip("_"))
async def test_a_held_run_is_not_claimed_and_the_attempt_writes_nothing(
    store: Store, tables: TablesOf, arrange: Arrange, by_name: bool
) -> None:
    await arrange(store)
    before = await tables()
    assert await store.claim_due(an_ask(run_id="r" if by_name else None)) == []
    assert await tables() == before


async def _signal(store: Store, clock: ManualClock) -> None:
    await store.deliver_signal(a_signal(), None)


async def _wake(store: Store, clock: ManualClock) -> None:
    clock.advance(10_000)


async def _back_off_over(store: Store, clock: ManualClock) -> None:
    clock.advance(1_000)


async def _lock_lapses(store: Store, clock: ManualClock) -> None:
    clock.advance(LOCK_MS)


async def _resume(store: Store, clock: ManualClock) -> None:
    await store.set_run_paused("r", False, None, None)


async def _resume_clog(store: Store, clock: ManualClock) -> None:
    await store.set_clog_paused(CLOG, False, None, None)


RELEASED = [
    (_idle, _signal),
    (_waiting, _wake),
    (_waiting, _signal),
    (_backing_off, _back_off_over),
    (_locked, _lock_lapses),
    (_paused, _resume),
    (_clog_paused, _resume_clog),
]


@pytest.mark.parametrize("by_name", [False, True], ids=["any", "named"])
@pytest.mark.parametrize(
    ("arrange", "release"), RELEASED, ids=[f"{a.__name__}{b.__name__}".strip("_") for a, b in RELEASED]
)
async def test_a_run_is_claimed_as_soon_as_what_held_it_has_passed(
    store: Store,
    clock: ManualClock,
    arrange: Arrange,
    release: Callable[[Store, ManualClock], Awaitable[None]],
    by_name: bool,
) -> None:
    await arrange(store)
    assert await store.claim_due(an_ask()) == []
    await release(store, clock)
    (taken,) = await store.claim_due(an_ask(run_id="r" if by_name else None))
    run = await the_run(store)
    assert (run.status, run.locked_by, run.lock_expires_at) == (RunStatus.ACTIVE, "i-a", clock.now() + LOCK_MS)
    assert taken.lock.epoch == run.lock_epoch


@pytest.mark.parametrize(("arrange", "ms"), [(_waiting, 9_999), (_backing_off, 999), (_locked, LOCK_MS - 1)])
async def test_nothing_is_claimed_a_millisecond_early(
    store: Store, clock: ManualClock, arrange: Arrange, ms: int
) -> None:
    await arrange(store)
    clock.advance(ms)
    assert await store.claim_due(an_ask()) == []
    clock.advance(1)
    assert len(await store.claim_due(an_ask())) == 1


async def test_only_runs_of_the_requested_clogs_are_claimed(store: Store) -> None:
    await pending(store, "mine")
    await pending(store, "theirs", clog_id=OTHER_CLOG)
    assert [taken.run.run_id for taken in await store.claim_due(an_ask(CLOG))] == ["mine"]
    assert await store.claim_due(an_ask(CLOG)) == []
    assert await store.claim_due(an_ask(CLOG, run_id="theirs")) == []
    assert await store.claim_due(NO_CLOGS) == []
    assert [taken.run.run_id for taken in await store.claim_due(an_ask(OTHER_CLOG))] == ["theirs"]


async def test_no_more_than_the_limit_is_claimed_over_all_lanes(store: Store) -> None:
    for number in range(12):
        await pending(store, f"r{number:02}", priority=number % 4, clog_id=(CLOG, OTHER_CLOG)[number % 2])
    assert len(await store.claim_due(an_ask(limit=5))) == 5
    assert len(await store.claim_due(an_ask(limit=50))) == 7


async def test_claims_are_ordered_by_priority_then_by_due_time(store: Store, clock: ManualClock) -> None:
    for run_id, priority in (("old5", 5), ("old9", 9), ("new5", 5), ("new0", 0)):
        await pending(store, run_id, priority=priority)
        clock.advance(10)
    claims = await store.claim_due(an_ask(limit=4))
    assert [taken.run.run_id for taken in claims] == ["new0", "old5", "new5", "old9"]


async def test_one_slot_in_eight_goes_to_the_longest_due_of_any_priority(store: Store, clock: ManualClock) -> None:
    await pending(store, "patient", priority=9)
    clock.advance(1)
    for number in range(20):
        await pending(store, f"urgent{number:02}", priority=0)
    place: list[int] = []
    for slot in range(8):
        (taken,) = await store.claim_due(an_ask(limit=1, slot=slot))
        if taken.run.run_id == "patient":
            place.append(slot)
    assert place == [7]


async def test_among_equally_due_runs_the_less_often_claimed_goes_first(store: Store) -> None:
    await pending(store, "a-greedy")
    await pending(store, "b")
    await run_tick(store, "a-greedy", Continue())
    await pending(store, "c")
    claims = await store.claim_due(an_ask())
    assert [taken.run.run_id for taken in claims] == ["b", "c", "a-greedy"]


async def test_every_claim_raises_the_epoch_by_one_and_the_tick_keeps_its_number_until_it_commits(
    store: Store, clock: ManualClock
) -> None:
    await pending(store, retry=RetryPolicy(max_attempts=None, delays_ms=(0,)))
    seen = []
    for outcome in (Retry("one"), Retry("two"), Continue(), Ok()):
        taken = await claim(store)
        seen.append((taken.lock.epoch, taken.tick, taken.call))
        await commit(store, taken, outcome)
    assert seen == [(1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 1)]


async def test_a_ticks_inputs_are_fixed_at_its_first_claim_over_crash_and_retry(
    store: Store, clock: ManualClock
) -> None:
    await pending(store, input="first", retry=RetryPolicy(max_attempts=None, delays_ms=(0,)))
    taken = await claim(store)
    await store.deliver_signal(a_signal(input="second"), None)
    clock.advance(LOCK_MS)
    after_crash = await claim(store, instance_id="i-b")
    await commit(store, after_crash, Retry("no"))
    await store.deliver_signal(a_signal(input="third"), None)
    after_retry = await claim(store)
    assert [given.body for given in taken.inputs] == ["first"]
    assert after_crash.inputs == taken.inputs == after_retry.inputs
    assert (taken.tick, after_crash.tick, after_retry.tick) == (1, 1, 1)
    await commit(store, after_retry)
    assert [given.body for given in (await claim(store)).inputs] == ["second"]


async def test_a_clog_that_takes_all_inputs_gets_every_due_one_and_no_later_one(
    store: Store, clock: ManualClock
) -> None:
    await store.create_run(a_run(), None)
    for body in (1, 2):
        await store.deliver_signal(a_signal(input=body), None)
    await store.deliver_signal(a_signal(input=3, deliver_at=clock.now() + 1), None)
    (taken,) = await store.claim_due(an_ask(takes_all_inputs=True))
    assert [given.body for given in taken.inputs] == [1, 2]
    await commit(store, taken)
    assert (await the_run(store)).status is RunStatus.WAITING


async def test_a_wake_without_input_is_a_tick_with_the_reason_wake(store: Store, clock: ManualClock) -> None:
    await _waiting(store)
    clock.advance(10_000)
    taken = await claim(store)
    assert (taken.reason, taken.inputs) == ("wake", ())


async def test_a_crash_is_a_failed_attempt_in_the_log(store: Store, clock: ManualClock) -> None:
    await claimed_run(store)
    clock.advance(LOCK_MS)
    again = await claim(store, instance_id="i-b")
    assert (again.run.attempt, again.call) == (1, 2)
    restarted = (await events(store, "r"))[-1]
    assert (restarted.type, restarted.call) == ("tick.restarted", 2)
    assert restarted.payload == {"because": "crash", "attempt": 1, "previous": "i-a"}


async def test_the_crash_that_reaches_max_attempts_fails_the_run_without_another_call(
    store: Store, clock: ManualClock
) -> None:
    await claimed_run(store, retry=RetryPolicy(max_attempts=2))
    clock.advance(LOCK_MS)
    await claim(store)
    clock.advance(LOCK_MS)
    assert await store.claim_due(an_ask()) == []
    run = await store.get_run("r")
    assert run is not None
    assert (run.status, run.attempt, run.error and run.error["code"]) == (RunStatus.FAILED, 2, "crashed")
    assert (await types(store, "r"))[-1] == "run.failed"


@pytest.mark.parametrize("run_id", [None, "r"], ids=["any", "named"])
async def test_a_lost_last_call_is_ended_by_an_instance_without_its_clog(
    store: Store, clock: ManualClock, run_id: str | None
) -> None:
    await claimed_run(store, retry=RetryPolicy(max_attempts=1))
    ask = an_ask("", run_id=run_id)
    clock.advance(LOCK_MS - 1)
    assert await store.claim_due(ask) == []
    assert await statuses(store, ["r"]) == ["active"]
    clock.advance(1)
    assert await store.claim_due(ask) == []
    assert await statuses(store, ["r"]) == ["failed"]


@pytest.mark.parametrize("arrange", ["idle", "waiting", "paused", "locked"])
async def test_a_deadline_ends_any_run_from_an_instance_without_clogs(
    store: Store, clock: ManualClock, arrange: str
) -> None:
    given = UNSET if arrange == "idle" else 1
    await store.create_run(a_run(input=given, deadline_at=clock.now() + 100), None)
    if arrange == "waiting":
        await run_tick(store, "r", Wait(for_ms=60_000))
    if arrange == "paused":
        await store.set_run_paused("r", True, None, None)
    if arrange == "locked":
        await claim(store)
    clock.advance(99)
    assert await store.claim_due(NO_CLOGS) == []
    assert not (await the_run(store)).is_ended
    clock.advance(1)
    assert await store.claim_due(NO_CLOGS) == []
    run = await store.get_run("r")
    assert run is not None
    assert (run.status, run.error and run.error["code"]) == (RunStatus.FAILED, "deadline_exceeded")


async def test_a_clog_with_on_end_gets_one_last_tick_which_a_pause_does_not_hold_back(
    store: Store, clock: ManualClock
) -> None:
    await store.register_clogs([ClogRecord(CLOG, "1", has_on_end=True)])
    await pending(store, deadline_at=clock.now() + 100)
    await store.set_clog_paused(CLOG, True, None, None)
    clock.advance(100)
    assert await store.claim_due(NO_CLOGS) == []
    ending = await the_run(store)
    assert (ending.status, ending.ending) == (RunStatus.PENDING, Ending.DEADLINE)
    taken = await claim(store)
    assert (taken.reason, taken.inputs) == ("deadline", ())
    assert await commit(store, taken, Continue()) == Committed(RunStatus.FAILED)
    run = await store.get_run("r")
    assert run is not None
    assert run.error is not None
    assert run.error["code"] == "deadline_exceeded"


async def test_a_claim_ends_every_overdue_run_and_claims_the_rest(store: Store, clock: ManualClock) -> None:
    for number in range(30):
        await pending(store, f"r{number}", deadline_at=clock.now() + 100)
    await pending(store, "free")
    clock.advance(100)
    claims = await store.claim_due(an_ask())
    assert [taken.run.run_id for taken in claims] == ["free"]
    assert set(await statuses(store, [f"r{number}" for number in range(30)])) == {"failed"}


async def test_two_instances_never_hold_the_same_run(store: Store) -> None:
    for number in range(10):
        await pending(store, f"r{number}")
    mine = await store.claim_due(an_ask(limit=6, instance_id="i-a"))
    yours = await store.claim_due(an_ask(limit=6, instance_id="i-b"))
    taken = [claim.run.run_id for claim in mine + yours]
    assert len(mine) == 6
    assert sorted(taken) == sorted({f"r{number}" for number in range(10)})


async def test_cancelling_takes_the_lock_away_and_ends_the_run(store: Store) -> None:
    await claimed_run(store)
    run = await store.cancel_run("r", None, "someone", None)
    assert (run.status, run.locked_by, run.error and run.error["code"]) == (RunStatus.FAILED, None, "cancelled")


@pytest.mark.parametrize("has_on_end", [False, True])
async def test_a_child_just_cancelled_by_its_parents_end_is_ended_once(
    store: Store, clock: ManualClock, has_on_end: bool
) -> None:
    await store.register_clogs([ClogRecord(OTHER_CLOG, "1", has_on_end)])
    at = clock.now() + 100
    await pending(store, "mother", deadline_at=at)
    await pending(store, "child", deadline_at=at, parent_run_id="mother", on_parent_end="cancel", clog_id=OTHER_CLOG)
    clock.advance(100)
    assert await store.claim_due(NO_CLOGS) == []
    assert await statuses(store, ["mother", "child"]) == ["failed", "pending" if has_on_end else "failed"]
    child = await store.get_run("child")
    assert child is not None
    assert child.error is not None
    assert child.error["code"] == "cancelled"


async def test_a_child_that_is_ending_already_keeps_its_last_tick_when_its_parent_ends(store: Store) -> None:
    await store.register_clogs([ClogRecord(OTHER_CLOG, "1", True)])
    await pending(store, "mother")
    await pending(store, "child", parent_run_id="mother", on_parent_end="cancel", clog_id=OTHER_CLOG)
    await store.cancel_run("child", "enough", None, None)
    await store.cancel_run("mother", None, None, None)
    assert await statuses(store, ["mother", "child"]) == ["failed", "pending"]
    child = await store.get_run("child")
    assert child is not None
    assert (child.ending, child.error) == ("cancel", {"code": "cancelled", "message": "enough", "details": None})
    assert (await types(store, "child")).count("run.ending") == 1


async def test_parent_and_child_that_crashed_on_their_last_calls_both_end(store: Store, clock: ManualClock) -> None:
    once = RetryPolicy(max_attempts=1)
    await claimed_run(store, "mother", retry=once)
    await claimed_run(store, "child", instance_id="i-b", retry=once, parent_run_id="mother", on_parent_end="cancel")
    clock.advance(LOCK_MS)
    assert await store.claim_due(NO_CLOGS) == []
    assert await statuses(store, ["mother", "child"]) == ["failed", "failed"]
    assert (await types(store, "child")).count("run.failed") == 1


async def test_a_run_past_its_deadline_is_never_called_however_many_there_are(store: Store, clock: ManualClock) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            run = a_run(f"r{number}", input=1, clog_id=OTHER_CLOG, deadline_at=clock.now() + 100)
            tasks.start_soon(store.create_run, run, None)
    await claimed_run(store, "at work", deadline_at=clock.now() + 101)
    await pending(store, "paused", deadline_at=clock.now() + 101)
    await store.set_run_paused("paused", True, None, None)
    clock.advance(200)
    for _ in range(3):
        assert await store.claim_due(an_ask(CLOG)) == []
    assert await statuses(store, ["at work", "paused", "r0", "r99"]) == ["failed"] * 4
