"""`lease_work`, `renew_lease`, `complete_lease`: which runs are leased, in which order, and the fence."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import LeaseAsk, LeaseCompletion, LeaseDone, LeasedRun, NotClaimable
from ocean.kernel.store.runs import Request
from ocean.state.backoff import RetryPolicy
from ocean.state.errors import InvalidValue, LeaseCompleted, LeaseLost, RequestKeyReused, RowChanged, UnknownClog
from ocean.state.outcomes import Continue, Done, Ok, Outcome, Retry
from ocean.state.records import ClogRecord, Ending, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    NO_CLOGS,
    TablesOf,
    a_call,
    a_run,
    an_ask,
    events,
    run_row,
    run_tick,
    the_run,
    types,
    writes,
)

pytestmark = pytest.mark.anyio

OUTSIDE = "outside"
LEASE_MS = 10_000
ROW = run_row()._replace(clog_id=OUTSIDE)

_numbers = itertools.count(1)


@pytest.fixture
async def store(store: Store) -> Store:
    """The store with an additional external clog."""
    await store.register_clogs([ClogRecord(OUTSIDE, "3", False, has_handler=False, external=True)])
    return store


def ask(*hashes: str, queues: tuple[str, ...] = (), slot: int = 0, worker_id: str = "w1") -> LeaseAsk:
    return LeaseAsk(OUTSIDE, worker_id, LEASE_MS, queues, hashes, slot)


async def due(store: Store, run_id: str = "r", **given: Any) -> None:
    await store.create_run(a_run(run_id, **({"input": {}, "clog_id": OUTSIDE} | given)), None)


async def leased(store: Store, lease_hash: str = "h", **options: Any) -> LeasedRun:
    (found,) = await store.lease_work(ask(lease_hash, **options))
    return found


async def leased_ids(store: Store, limit: int = 1, **options: Any) -> list[str]:
    hashes = tuple(f"h-{next(_numbers)}" for _ in range(limit))
    return [each.claim.run.run_id for each in await store.lease_work(ask(*hashes, **options))]


def completion(
    outcome: Outcome | None = None, lease_hash: str = "h", *, body_hash: str = "b", **given: Any
) -> LeaseCompletion:
    whole: dict[str, Any] = {"events": (), "writes_row": False, "row": None, "row_version": None} | given
    return LeaseCompletion(lease_hash, outcome or Done(), body_hash=body_hash, **whole)


async def test_the_urgent_go_first_and_every_eighth_lease_to_the_longest_due(store: Store, clock: ManualClock) -> None:
    await due(store, "patient", priority=9)
    clock.advance(1)
    for i in range(9):
        await due(store, f"urgent-{i}", priority=0)
        clock.advance(1)
    assert await leased_ids(store, 2) == ["urgent-0", "urgent-1"]
    assert await leased_ids(store, 1, slot=7) == ["patient"]
    assert await leased_ids(store, 10, slot=8) == [f"urgent-{i}" for i in range(2, 9)]


async def test_queues_share_fairness_and_limit(store: Store, clock: ManualClock) -> None:
    for run_id, queue, priority in (("a9", "a", 9), ("b0", "b", 0), ("a5", "a", 5), ("c0", "c", 0), ("b5", "b", 5)):
        await due(store, run_id, queue=queue, priority=priority)
        clock.advance(1)
    assert await leased_ids(store, 2, queues=("a", "b")) == ["b0", "a5"]
    assert await leased_ids(store, 1, queues=("a", "b"), slot=7) == ["a9"]
    assert await leased_ids(store, 10, queues=("a", "b")) == ["b5"]
    assert await leased_ids(store, 10, queues=("a", "b")) == []
    assert await leased_ids(store, 10) == ["c0"]


async def test_asking_for_work_when_there_is_none_writes_nothing(store: Store, tables: TablesOf) -> None:
    await due(store, queue="a")
    await store.create_run(a_run("inside", input={}), None)
    before = await tables()
    assert await store.lease_work(ask("h", queues=("b",))) == []
    with pytest.raises(InvalidValue, match="must be external"):
        await store.lease_work(replace(ask("h"), clog_id=CLOG))
    with pytest.raises(UnknownClog, match="outside"):
        await store.lease_work(replace(ask("h"), clog_id="outsid"))
    assert await tables() == before


async def test_a_lease_is_a_claim_with_the_clogs_version_and_the_row(store: Store, clock: ManualClock) -> None:
    await due(store, input={"n": 1})
    await store.commit_call(a_call(writes((ROW, 0, '"old"'))))
    found = await leased(store)
    claim = found.claim
    assert (claim.tick, claim.call, claim.reason, claim.lock.epoch) == (1, 1, "created", 1)
    assert [each.body for each in claim.inputs] == [{"n": 1}]
    assert (found.row.text, found.row.version > 0) == ('"old"', True)
    run = await the_run(store)
    assert (run.status, run.leased, run.locked_by) == (RunStatus.ACTIVE, True, "w1")
    assert run.lock_expires_at == claim.lock_expires_at == clock.now() + LEASE_MS
    [tick] = await store.list_ticks("r", 0, 10)
    assert (tick.version, tick.instance_id) == ("3", "w1")


async def test_a_leased_run_cannot_be_claimed(store: Store, clock: ManualClock, tables: TablesOf) -> None:
    await due(store)
    await leased(store)
    clock.advance(LEASE_MS - 1)
    before = await tables()
    assert await leased_ids(store) == []
    assert await store.claim_due(an_ask(CLOG, OUTSIDE)) == []
    assert await store.claim_due(an_ask(CLOG, OUTSIDE, run_id="r")) == []
    assert await tables() == before


@pytest.mark.parametrize("run_id", [None, "r"], ids=["any", "named"])
async def test_a_claim_without_clogs_gives_a_lapsed_lease_back(
    store: Store, clock: ManualClock, run_id: str | None
) -> None:
    await due(store)
    await leased(store)
    agenda = await store.agenda(())
    assert (agenda.next_wake_at, agenda.unclaimable) == (clock.now() + LEASE_MS, 0)
    clock.advance(LEASE_MS)
    assert (await store.preview_claim(replace(NO_CLOGS, run_id="r"))) == NotClaimable()
    assert await store.claim_due(replace(NO_CLOGS, run_id=run_id)) == []
    run = await the_run(store)
    assert (run.status, run.leased, run.attempt, run.ready_at) == (RunStatus.PENDING, False, 1, clock.now())
    [*_, back] = await events(store, "r")
    assert (back.type, back.payload["because"], back.payload["attempt"]) == ("tick.given_back", "lease_lapsed", 1)
    agenda = await store.agenda(())
    assert (agenda.next_wake_at, agenda.unclaimable) == (None, 1)
    with pytest.raises(LeaseLost):
        await store.renew_lease("h", None, (), None)


async def test_a_lapse_on_the_last_attempt_is_an_end_that_any_claim_makes(store: Store, clock: ManualClock) -> None:
    await due(store, retry=RetryPolicy(max_attempts=1))
    await leased(store)
    clock.advance(LEASE_MS)
    assert (await store.preview_claim(replace(NO_CLOGS, run_id="r"))) == NotClaimable(end=Ending.EXHAUSTED)
    assert await store.claim_due(NO_CLOGS) == []
    run = await the_run(store)
    assert (run.status, run.leased, run.attempt) == (RunStatus.FAILED, False, 1)
    assert (await types(store, "r"))[-1] == "run.failed"


async def test_a_renewal_extends_by_the_leases_own_time_or_by_another(store: Store, clock: ManualClock) -> None:
    await due(store)
    await leased(store)
    clock.advance(100)
    assert await store.renew_lease("h", None, [("said", "1")], None) == clock.now() + LEASE_MS
    assert await store.renew_lease("h", 50_000, (), None) == clock.now() + 50_000
    assert await store.renew_lease("h", 10, (), None) == clock.now() + 50_000
    run = await the_run(store)
    assert (run.lock_expires_at, run.lock_epoch) == (clock.now() + 50_000, 1)
    [*_, event] = await events(store, "r")
    assert (event.type, event.payload, event.tick, event.call, event.actor) == ("said", 1, 1, 1, "w1")


async def test_a_completion_has_one_result(store: Store, tables: TablesOf) -> None:
    await due(store)
    await leased(store)
    first = await store.complete_lease(completion(Continue(2)))
    assert first == LeaseDone("r", 1, RunStatus.PENDING)
    before = await tables()
    assert await store.complete_lease(completion(Continue(2))) == first
    with pytest.raises(LeaseCompleted):
        await store.complete_lease(completion(Done(), body_hash="other"))
    assert await tables() == before
    await leased(store, "h2")
    await store.complete_lease(completion(Done(), "h2"))
    before = await tables()
    assert await store.complete_lease(completion(Continue(2))) == first, "the result of that call"
    assert await store.complete_lease(completion(Done(), "h2")) == LeaseDone("r", 2, RunStatus.DONE)
    assert await tables() == before


@pytest.mark.parametrize("outcome", [Ok(), Done(), Retry("late")], ids=["ok", "done", "retry"])
async def test_the_fence_is_the_epoch_also_when_the_run_is_leased_again(
    store: Store, clock: ManualClock, tables: TablesOf, outcome: Outcome
) -> None:
    await due(store)
    await leased(store)
    clock.advance(LEASE_MS)
    await leased(store, "h2", worker_id="w2")
    before = await tables()
    late = completion(outcome, events=(("late", "1"),), writes_row=True, row="1")
    with pytest.raises(LeaseLost, match="no longer leased to w1"):
        await store.complete_lease(late)
    with pytest.raises(LeaseLost, match="no longer leased to w1"):
        await store.renew_lease("h", 99_000, [("late", "1")], None)
    assert await tables() == before
    assert await store.complete_lease(completion(lease_hash="h2")) == LeaseDone("r", 1, RunStatus.DONE)


async def test_a_row_is_compared_with_the_version_that_was_leased_or_is_named(store: Store, tables: TablesOf) -> None:
    await due(store)
    await leased(store)
    await store.commit_call(a_call(writes((ROW, 0, '"theirs"'))))
    before = await tables()
    with pytest.raises(RowChanged) as refused:
        await store.complete_lease(completion(writes_row=True, row='"mine"'))
    with pytest.raises(RowChanged):
        await store.complete_lease(completion(writes_row=True, row='"mine"', row_version=0))
    assert await tables() == before
    assert refused.value.details["row"] == "theirs"
    seen = refused.value.details["row_version"]
    done = await store.complete_lease(completion(writes_row=True, row='"both"', row_version=seen))
    assert done == LeaseDone("r", 1, RunStatus.DONE)


async def test_leases_are_deleted_with_their_run_and_its_next_life_has_none(store: Store, tables: TablesOf) -> None:
    await due(store)
    await leased(store)
    await store.delete_run("r", None, None)
    assert len((await tables())["ocean_leases"]) == 1, "only the columns are left"
    await due(store)
    await leased(store, "h2")
    before = await tables()
    with pytest.raises(LeaseLost, match="no such lease"):
        await store.complete_lease(completion())
    assert await tables() == before


async def test_a_run_of_an_internal_clog_has_no_lease(store: Store, tables: TablesOf) -> None:
    await store.create_run(a_run("inside", input={}), None)
    await run_tick(store, "inside", Done())
    assert len((await tables())["ocean_leases"]) == 1
    assert (await the_run(store, "inside")).queue is None


async def test_a_lease_is_renewed_once_for_a_request_key(store: Store, clock: ManualClock) -> None:
    await due(store)
    await leased(store)
    request = Request("k", "hash")
    ends = await store.renew_lease("h", None, [("said", "1")], request)
    clock.advance(5)
    assert await store.renew_lease("h", None, [("said", "1")], request) == ends
    assert (await types(store, "r")).count("said") == 1
    with pytest.raises(RequestKeyReused):
        await store.release_lease("h", Request("k", "another"))


async def test_the_first_stored_result_stays(store: Store) -> None:
    assert await store.keep_answer(Request("k", "hash"), "first") == "first"
    assert await store.keep_answer(Request("k", "hash"), "second") == "first"
    assert await store.stored_answer(Request("k", "hash")) == "first"
    with pytest.raises(RequestKeyReused):
        await store.keep_answer(Request("k", "another"), "third")
