"""Crashes: which runs were at work together, what that costs them, and how the culprit is found."""

import pytest

from ocean.kernel.store import Store
from ocean.state.backoff import RetryPolicy
from ocean.state.outcomes import Done, Retry
from ocean.state.records import Claim, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import LOCK_MS, NO_CLOGS, OTHER_CLOG, an_ask, claim, commit, events, pending, the_run

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(max_attempts=1)


async def at_work(store: Store, *run_ids: str, retry: RetryPolicy | None = None, instance_id: str = "i-a") -> None:
    for run_id in run_ids:
        await pending(store, run_id, retry=retry)
        await claim(store, run_id, instance_id=instance_id)


async def take(store: Store, instance_id: str = "i-b") -> dict[str, Claim]:
    return {each.run.run_id: each for each in await store.claim_due(an_ask(instance_id=instance_id))}


async def test_a_crash_of_several_runs_is_no_attempt_of_any_and_makes_them_suspects(
    store: Store, clock: ManualClock
) -> None:
    await at_work(store, "a", "b", "c")
    clock.advance(LOCK_MS)
    taken = await take(store)
    assert {run_id: (each.run.attempt, each.crash_company) for run_id, each in taken.items()} == {
        "a": (0, 3),
        "b": (0, 3),
        "c": (0, 3),
    }
    restarted = [event.payload for event in await events(store) if event.type == "tick.restarted"]
    assert [(each["because"], each["attempt"], each["company"]) for each in restarted] == [("crash", 0, 3)] * 3


async def test_a_crash_of_one_run_alone_is_an_attempt(store: Store, clock: ManualClock) -> None:
    await at_work(store, "a")
    await at_work(store, "elsewhere", instance_id="i-c")
    clock.advance(LOCK_MS)
    taken = await take(store)
    assert {run_id: each.run.attempt for run_id, each in taken.items()} == {"a": 1, "elsewhere": 1}
    (restarted, _) = [event.payload for event in await events(store) if event.type == "tick.restarted"]
    assert "company" not in restarted


async def test_runs_of_a_crashed_process_that_are_found_one_after_another_were_still_together(
    store: Store, clock: ManualClock
) -> None:
    await at_work(store, "a", "b")
    clock.advance(LOCK_MS)
    first = await claim(store, "a", instance_id="i-b")
    await commit(store, first, Done(1))
    second = await claim(store, "b", instance_id="i-c")
    assert (second.run.attempt, second.crash_company) == (0, 2)


async def test_a_run_that_waited_behind_a_suspect_loses_no_attempt_when_the_suspect_is_found_first(
    store: Store, clock: ManualClock
) -> None:
    await at_work(store, "a", "b")
    clock.advance(LOCK_MS)
    taken = await take(store)
    assert await store.call_apart([taken["a"].lock]) == set()
    await at_work(store, "waiting", instance_id="i-b")
    clock.advance(LOCK_MS)
    found = [await claim(store, run_id, instance_id="i-c") for run_id in ("a", "waiting", "b")]
    assert [(each.run.attempt, each.crash_company) for each in found] == [(1, 1), (0, None), (0, 2)]


async def test_a_last_attempt_is_not_spent_by_a_crash_beside_others(store: Store, clock: ManualClock) -> None:
    await at_work(store, "a", "b", retry=ONCE)
    clock.advance(LOCK_MS)
    assert await store.claim_due(NO_CLOGS) == []
    assert sorted(await take(store)) == ["a", "b"]


async def test_only_the_suspects_that_were_being_called_are_suspected_of_the_next_crash(
    store: Store, clock: ManualClock
) -> None:
    await at_work(store, "a", "b", "c", "d")
    await pending(store, "new")
    clock.advance(LOCK_MS)
    taken = await take(store)
    assert await store.call_apart([taken["a"].lock, taken["b"].lock]) == set()
    clock.advance(LOCK_MS)
    again = await take(store, "i-c")
    assert {run_id: (each.run.attempt, each.crash_company) for run_id, each in again.items()} == {
        "a": (0, 2),
        "b": (0, 2),
        "c": (0, 4),
        "d": (0, 4),
        "new": (0, None),
    }
    assert await store.call_apart([again["a"].lock]) == set()
    clock.advance(LOCK_MS)
    last = await take(store, "i-d")
    assert {run_id: (each.run.attempt, each.crash_company) for run_id, each in last.items()} == {
        "a": (1, 1),
        "b": (0, 2),
        "c": (0, 4),
        "d": (0, 4),
        "new": (0, None),
    }


async def test_the_culprit_fails_when_its_attempts_are_spent_alone(store: Store, clock: ManualClock) -> None:
    await at_work(store, "a", "b", retry=ONCE)
    clock.advance(LOCK_MS)
    taken = await take(store)
    await store.call_apart([taken["a"].lock])
    clock.advance(LOCK_MS)
    assert sorted(await take(store, "i-c")) == ["b"]
    run = await store.get_run("a")
    assert run is not None
    assert run.error is not None
    assert (run.status, run.error["code"], run.attempt) == (RunStatus.FAILED, "crashed", 1)
    assert "worked on tick 1 of this run alone" in run.error["message"]


async def test_an_orderly_end_of_the_call_clears_a_suspect(store: Store, clock: ManualClock) -> None:
    await at_work(store, "a", "b")
    clock.advance(LOCK_MS)
    taken = await take(store)
    await commit(store, taken["a"], Retry("no", after_ms=0))
    assert (await the_run(store, "a")).crash_company is None
    assert await store.give_back(taken["b"].lock, taken["b"].tick) is RunStatus.PENDING
    assert (await the_run(store, "b")).crash_company == 2


async def test_what_a_process_has_claimed_since_its_lock_expired_is_no_company(
    store: Store, clock: ManualClock
) -> None:
    """It is alive, and may claim its own run again."""
    await at_work(store, "a")
    clock.advance(LOCK_MS + 1)
    await pending(store, "fresh")
    taken = await take(store, "i-a")
    assert {run_id: (each.run.attempt, each.crash_company) for run_id, each in taken.items()} == {
        "a": (1, 1),
        "fresh": (0, None),
    }
    assert (await the_run(store, "fresh")).crash_epoch is None


async def test_call_apart_reports_lost_locks(store: Store, clock: ManualClock) -> None:
    await at_work(store, "a", "b")
    clock.advance(LOCK_MS)
    taken = await take(store)
    await commit(store, taken["a"], Done(1))
    assert await store.call_apart([taken["a"].lock, taken["b"].lock]) == {taken["a"].lock}


async def test_explain_judges_a_crash_as_the_claim_will(store: Store, clock: ManualClock) -> None:
    """Beside others it is no end, so a run of a clog that is not here waits for an instance that has it."""
    await at_work(store, "a", "b", retry=ONCE)
    clock.advance(LOCK_MS)
    seen = await store.survey("a", [OTHER_CLOG])
    assert seen is not None
    assert (seen[0].crash_company, seen[0].crash_epoch) == (2, seen[0].lock_epoch)
    assert (await store.survey("a", [OTHER_CLOG])) == seen
