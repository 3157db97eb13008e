"""Concurrency keys: slots are taken at the claim, kept for a tick or a run, and passed on when they are freed."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Contended
from ocean.kernel.store.runs import Request
from ocean.state.backoff import RetryPolicy
from ocean.state.counters import Take
from ocean.state.effects import Effects, SetTimer
from ocean.state.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.state.records import Claim, ClogRecord, Key, KeyInfo, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    LOCK_MS,
    NO_CLOGS,
    OTHER_CLOG,
    TablesOf,
    a_call,
    a_run,
    a_signal,
    an_ask,
    claim,
    claimed_run,
    commit,
    events,
    pending,
    run_row,
    run_tick,
    the_run,
    types,
    writes,
)

pytestmark = pytest.mark.anyio

OUTCOMES = [Ok(), Wait(for_ms=60_000), Continue(), Retry("again"), Done(), Failed("no")]


def _named(outcome: Outcome) -> str:
    return type(outcome).__name__.lower()


async def _claimed(store: Store, *clog_ids: str, limit: int = 10) -> list[str]:
    return [claim.run.run_id for claim in await store.claim_due(an_ask(*clog_ids, limit=limit))]


async def _parked_on(store: Store, run_ids: Sequence[str]) -> list[str | None]:
    return [(await the_run(store, run_id)).parked_on for run_id in run_ids]


async def _line(store: Store, *run_ids: str, keys: Sequence[str | Key] = ("k",)) -> None:
    for run_id in run_ids:
        await pending(store, run_id, concurrency_keys=keys)


async def _next_is(store: Store, run_id: str) -> None:
    """Check that the previous commit woke this run, and no other run is due."""
    assert await _parked_on(store, [run_id]) == [None]
    assert await _claimed(store) == [run_id]


async def test_without_a_limit_one_run_works_at_a_time(store: Store) -> None:
    await _line(store, "a", "b", "c")
    assert await _claimed(store) == ["a"]
    assert await store.get_key("k") == KeyInfo("k", 1, 1, 2)
    assert await _claimed(store) == []


async def test_a_run_created_while_its_key_is_full_is_parked_at_once(store: Store) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"])
    parked = await store.create_run(a_run("b", input=1, concurrency_keys=["k"]), None)
    assert (parked.status, parked.parked_on, parked.due_at) == (RunStatus.PENDING, "k", None)
    assert parked.concurrency_keys == (Key("k", "tick"),)
    assert await types(store, "b") == ["run.created", "run.parked"]
    assert (await events(store, "b"))[1].payload == {"key": "k", "limit": 1, "status": "pending"}
    agenda = await store.agenda([CLOG])
    assert (agenda.due_now, agenda.unclaimable) == (0, 0)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=_named)
async def test_a_key_held_for_the_tick_is_free_after_any_outcome(
    store: Store, clock: ManualClock, outcome: Outcome
) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b")
    clock.advance(1)
    await commit(store, held, outcome)
    assert (await store.get_key("k")).in_use == 0
    assert await _parked_on(store, ["b"]) == [None]
    assert (await _claimed(store, limit=1)) == ["b"], "and a run that continues goes behind it"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=_named)
async def test_a_key_held_for_the_run_is_free_only_after_its_end(store: Store, outcome: Outcome) -> None:
    held = await claimed_run(store, "a", concurrency_keys=[Key("k", "run")])
    await _line(store, "b")
    await commit(store, held, outcome)
    is_over = isinstance(outcome, Done | Failed)
    assert (await store.get_key("k")).in_use == (0 if is_over else 1)
    assert await _parked_on(store, ["b"]) == [None if is_over else "k"]


async def test_a_run_that_keeps_its_key_needs_no_other_slot_for_its_next_ticks(
    store: Store, clock: ManualClock
) -> None:
    await claimed_run(store, "a", concurrency_keys=[Key("k", "run"), "t"])
    await _line(store, "b")
    await commit(store, await _reclaim(store, clock, "a"), Wait(for_ms=10))
    assert [(await store.get_key(key)).in_use for key in ("k", "t")] == [1, 0]
    await store.deliver_signal(a_signal("a", 1), None)
    await run_tick(store, "a", Ok())
    await store.deliver_signal(a_signal("a", 2), None)
    assert await _parked_on(store, ["a", "b"]) == [None, "k"]
    await run_tick(store, "a", Done())
    await _next_is(store, "b")


async def _reclaim(store: Store, clock: ManualClock, run_id: str) -> Claim:
    """Claim the run again after its holder has died and the lock has expired."""
    clock.advance(LOCK_MS)
    return await claim(store, run_id)


async def test_a_give_back_frees_the_slot_and_the_run_stands_in_line_again(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b")
    clock.advance(1)
    await store.give_back(held.lock, held.tick)
    assert await _parked_on(store, ["a", "b"]) == [None, None]
    assert await _claimed(store) == ["b"]
    assert await _parked_on(store, ["a"]) == ["k"]


async def test_a_conflict_keeps_the_slot(store: Store) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b")
    await store.commit_call(a_call(writes((run_row("a"), 0, "1")), run_id="a"))
    result = await commit(store, held, Ok(), writes((run_row("a"), 0, "2")))
    assert isinstance(result, Contended)
    assert await store.get_key("k") == KeyInfo("k", 1, 1, 1)
    await store.take(Take("cap", 1, 1), None)
    result = await commit(store, held, Ok(), Effects(takes=[Take("cap", 1, 1)]))
    assert isinstance(result, Contended)
    assert await store.get_key("k") == KeyInfo("k", 1, 1, 1)


@pytest.mark.parametrize("hold", ["tick", "run"])
async def test_a_cancelled_holder_frees_its_slot(store: Store, hold: Literal["tick", "run"]) -> None:
    await claimed_run(store, "a", concurrency_keys=[Key("k", hold)])
    await _line(store, "b")
    await store.cancel_run("a", None, None, None)
    await _next_is(store, "b")


async def test_a_holder_whose_deadline_passes_frees_its_slot_by_any_poke(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"], deadline_at=clock.now() + 10)
    await _line(store, "b")
    clock.advance(10)
    assert await store.claim_due(NO_CLOGS) == []
    await _next_is(store, "b")


async def test_a_parked_run_is_ended_by_its_deadline(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"])
    parked = await pending(store, "b", concurrency_keys=["k"], deadline_at=clock.now() + 10)
    assert parked.due_at == clock.now() + 10
    clock.advance(10)
    assert await store.claim_due(NO_CLOGS) == []
    ended = await the_run(store, "b")
    assert (ended.status, ended.parked_on) == (RunStatus.FAILED, None)
    assert await store.get_key("k") == KeyInfo("k", 1, 1, 0)


async def test_a_crashed_holder_keeps_its_slot_until_it_is_claimed_again(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b")
    clock.advance(LOCK_MS - 1)
    assert await _claimed(store) == []
    clock.advance(1)
    again = await claim(store)
    assert (again.run.run_id, again.call) == ("a", 2)
    assert await store.get_key("k") == KeyInfo("k", 1, 1, 1)
    await commit(store, again)
    await _next_is(store, "b")


async def test_a_crash_on_the_last_attempt_frees_the_slot_by_an_instance_without_the_clog(
    store: Store, clock: ManualClock
) -> None:
    await claimed_run(store, "a", concurrency_keys=[Key("k", "run")], retry=RetryPolicy(max_attempts=1))
    await _line(store, "b")
    clock.advance(LOCK_MS)
    assert await store.claim_due(NO_CLOGS) == []
    await _next_is(store, "b")


async def test_a_retry_that_was_the_last_attempt_frees_the_slot(store: Store) -> None:
    held = await claimed_run(store, "a", concurrency_keys=[Key("k", "run")], retry=RetryPolicy(max_attempts=1))
    await _line(store, "b")
    await commit(store, held, Retry("no"))
    await _next_is(store, "b")


@pytest.mark.parametrize("what", ["signal", "timer", "child", "resume", "cancel"])
async def test_whatever_makes_a_run_due_parks_it_in_the_same_transaction(
    store: Store, clock: ManualClock, what: str
) -> None:
    await store.register_clogs([ClogRecord(CLOG, "1", has_on_end=what == "cancel")])
    await claimed_run(store, "a", concurrency_keys=["k"])
    await store.create_run(a_run("r", concurrency_keys=["k"]), None)
    match what:
        case "signal":
            await store.deliver_signal(a_signal("r", 1), None)
        case "timer":
            await store.commit_call(a_call(Effects(timers=[SetTimer("t", clock.now(), None)])))
        case "child":
            await pending(store, "child", parent_run_id="r", notify_parent=True)
            await run_tick(store, "child", Done())
        case "resume":
            await store.set_run_paused("r", True, None, None)
            await store.deliver_signal(a_signal("r", 1), None)
            assert await _parked_on(store, ["r"]) == [None]
            await store.set_run_paused("r", False, None, None)
        case "cancel":
            await store.cancel_run("r", None, None, None)
    run = await the_run(store)
    assert (run.status, run.parked_on, run.parked_at is None) == (RunStatus.PENDING, "k", False)
    assert (await types(store, "r"))[-1] == "run.parked"
    assert (await store.agenda([CLOG])).due_now == 0


@pytest.mark.parametrize("what", ["wait", "back-off", "delayed signal", "rate"])
async def test_a_run_that_time_makes_due_is_parked_by_the_claim_that_finds_it(
    store: Store, clock: ManualClock, what: str
) -> None:
    match what:
        case "wait":
            await pending(store, concurrency_keys=["k"])
            await run_tick(store, "r", Wait(for_ms=10))
        case "back-off":
            await pending(store, concurrency_keys=["k"])
            await run_tick(store, "r", Retry("no", after_ms=10))
        case "delayed signal":
            await store.create_run(a_run("r", concurrency_keys=["k"]), None)
            await store.deliver_signal(a_signal("r", 1, deliver_at=clock.now() + 10), None)
        case "rate":
            rate: dict[str, Any] = {"rate_key": "rate", "rate_limit": 1, "rate_per_ms": 10}
            await pending(store, "first", **rate)
            await run_tick(store, "first", Done())
            await pending(store, concurrency_keys=["k"], **rate)
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    clock.advance(10)
    assert await _parked_on(store, ["r"]) == [None]
    assert (await store.agenda([CLOG])).due_now == 1
    assert await _claimed(store) == []
    assert await _parked_on(store, ["r"]) == ["k"]
    assert (await types(store, "r"))[-1] == "run.parked"
    agenda = await store.agenda([CLOG])
    assert (agenda.due_now, agenda.next_wake_at) == (0, held.lock_expires_at)
    await commit(store, held)
    await _next_is(store, "r")


async def test_the_urgent_go_first_then_the_longest_parked(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    for run_id, priority in (("patient", 9), ("first", 5), ("second", 5), ("urgent", 0)):
        await pending(store, run_id, priority=priority, concurrency_keys=["k"])
        clock.advance(1)
    order = []
    for _ in range(4):
        await commit(store, held, Done())
        held = await claim(store)
        order.append(held.run.run_id)
    assert order == ["urgent", "first", "second", "patient"]


async def test_every_eighth_slot_goes_to_the_run_parked_longest(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await pending(store, "patient", priority=9, concurrency_keys=["k"])
    for number in range(12):
        clock.advance(1)
        await pending(store, f"u{number:02}", priority=0, concurrency_keys=["k"])
    order = []
    for _ in range(9):
        await commit(store, held, Done())
        held = await claim(store)
        order.append(held.run.run_id)
    assert order == [f"u{number:02}" for number in range(7)] + ["patient", "u07"]


async def test_a_run_woken_in_vain_keeps_its_place(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "old")
    clock.advance(1)
    await _line(store, "young")
    await commit(store, held)
    await pending(store, "quick", priority=0, concurrency_keys=["k"])
    assert await _claimed(store) == ["quick"]
    assert await _parked_on(store, ["old", "young"]) == ["k", "k"]
    assert (await types(store, "old")).count("run.parked") == 1, "one wait, one event"
    await store.cancel_run("quick", None, None, None)
    await _next_is(store, "old")


async def test_a_limit_can_be_raised_and_lowered_without_interrupting_runs(store: Store) -> None:
    assert await store.set_limit("k", 2, "ann", None) == KeyInfo("k", 2, 0, 0)
    await _line(store, "a", "b", "c", "d")
    assert await _claimed(store) == ["a", "b"]
    assert await store.set_limit("k", 3, None, None) == KeyInfo("k", 3, 2, 1)
    assert await _claimed(store) == ["c"]
    assert await store.set_limit("k", 1, None, None) == KeyInfo("k", 1, 3, 1)
    logged = [(event.type, event.payload, event.actor) for event in await events(store) if event.run_id is None]
    assert logged == [
        ("key.limit_set", {"key": "k", "limit": 2, "before": 1}, "ann"),
        ("key.limit_set", {"key": "k", "limit": 3, "before": 2}, None),
        ("key.limit_set", {"key": "k", "limit": 1, "before": 3}, None),
    ]
    for run_id in ("a", "b"):
        await store.cancel_run(run_id, None, None, None)
        assert await _claimed(store) == [], "three hold it, one may"
    await store.cancel_run("c", None, None, None)
    await _next_is(store, "d")


async def test_a_limit_of_zero_stops_a_key_until_it_is_raised(store: Store) -> None:
    await store.set_limit("k", 0, None, None)
    await _line(store, "a", "b")
    assert await _parked_on(store, ["a", "b"]) == ["k", "k"]
    assert (await store.get_key("k")).parked == 2
    await store.set_limit("k", 5, None, None)
    assert await _claimed(store) == ["a", "b"]


async def test_a_limit_raised_far_enough_wakes_all_parked_runs(store: Store) -> None:
    await store.set_limit("k", 0, None, None)
    names = [f"r{number:03}" for number in range(250)]
    await _line(store, *names)
    await store.set_limit("k", 240, None, None)
    assert len(await _claimed(store, limit=10_000)) == 100
    assert len(await _claimed(store, limit=10_000)) == 100, "each claimed run has woken one more"
    assert len(await _claimed(store, limit=10_000)) == 40
    assert await store.get_key("k") == KeyInfo("k", 240, 240, 10)


async def test_a_key_that_is_no_longer_used_leaves_no_row(store: Store, tables: TablesOf) -> None:
    await _line(store, "a", "b")
    await run_tick(store, "a", Done())
    await run_tick(store, "b", Ok())
    await store.set_limit("k", 1, None, None)
    await store.set_limit("other", 0, None, None)
    await store.set_limit("other", 1, None, None)
    assert len((await tables())["ocean_keys"]) == 1, "only the names of the columns"
    assert await store.list_keys("", 10) == []


async def test_keys_are_listed_by_name_in_pages(store: Store) -> None:
    for number in range(5):
        await store.set_limit(f"k{number}", 7, None, None)
    await claimed_run(store, "a", concurrency_keys=["held"])
    first = await store.list_keys("", 4)
    assert [info.key for info in first] == ["held", "k0", "k1", "k2"]
    assert first[0] == KeyInfo("held", 1, 1, 0)
    assert [info.key for info in await store.list_keys("k2", 4)] == ["k3", "k4"]
    assert await store.get_key("never heard of") == KeyInfo("never heard of", 1, 0, 0)


async def test_set_limit_under_a_request_key_happens_once(store: Store, tables: TablesOf) -> None:
    request = Request("once", "hash")
    first = await store.set_limit("k", 5, None, request)
    await store.set_limit("k", 2, None, None)
    before = await tables()
    assert await store.set_limit("k", 5, None, request) == first == KeyInfo("k", 5, 0, 0)
    assert await tables() == before


async def test_a_run_takes_all_its_keys_or_none(store: Store) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["y"])
    await _line(store, "b", keys=["x", "y", "z"])
    assert await _parked_on(store, ["b"]) == ["y"]
    assert [(await store.get_key(key)).in_use for key in "xyz"] == [0, 1, 0]
    await commit(store, held)
    await _next_is(store, "b")
    assert [(await store.get_key(key)).in_use for key in "xyz"] == [1, 1, 1]


async def test_a_run_that_finds_its_second_key_full_leaves_the_first_to_others(store: Store) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["x"])
    await _line(store, "both", keys=["x", "y"])
    await _line(store, "one", keys=["x"])
    other = await claimed_run(store, "b", concurrency_keys=["y"])
    await commit(store, held)
    assert await _parked_on(store, ["both", "one"]) == [None, "x"], "the first in line is woken"
    assert await _claimed(store) == ["one"], "finds y full, and leaves x to others"
    assert await _parked_on(store, ["both"]) == ["y"]
    await commit(store, other)
    assert await _claimed(store) == [], "x is taken now"
    assert await _parked_on(store, ["both"]) == ["x"]
    assert (await types(store, "both")).count("run.parked") == 1
    await store.cancel_run("one", None, None, None)
    await _next_is(store, "both")


@pytest.mark.parametrize("why", ["registered nowhere", "paused"])
async def test_a_clog_that_cannot_run_does_not_block_the_slot_for_others(store: Store, why: str) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await pending(store, "absent-1", clog_id=OTHER_CLOG, priority=0, concurrency_keys=["k"])
    await pending(store, "absent-2", clog_id=OTHER_CLOG, priority=0, concurrency_keys=["k"])
    await _line(store, "b", "c")
    if why == "paused":
        await store.set_clog_paused(OTHER_CLOG, True, None, None)
    here = [CLOG] if why == "registered nowhere" else []
    await commit(store, held)
    assert await _claimed(store, *here) == ["b"]
    await store.cancel_run("b", None, None, None)
    assert await _claimed(store, *here) == ["c"]
    await store.cancel_run("c", None, None, None)
    await store.set_clog_paused(OTHER_CLOG, False, None, None)
    assert await _claimed(store) == ["absent-1"]


async def test_a_paused_run_leaves_the_line_and_takes_its_place_again(store: Store, clock: ManualClock) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    for run_id in ("b", "c", "d"):
        await _line(store, run_id)
        clock.advance(1)
    await store.set_run_paused("b", True, None, None)
    assert await _parked_on(store, ["b"]) == [None]
    await commit(store, held, Done())
    assert await _parked_on(store, ["c", "d"]) == [None, "k"]
    await store.set_run_paused("c", True, None, None)
    assert await _parked_on(store, ["d"]) == [None], "a woken run that is paused passes the slot on"
    assert await _claimed(store) == ["d"]
    await store.set_run_paused("c", False, None, None)
    await store.set_run_paused("b", False, None, None)
    assert await _parked_on(store, ["b", "c"]) == ["k", "k"]
    await store.cancel_run("d", None, None, None)
    await _next_is(store, "b")


@pytest.mark.parametrize(("hold", "in_use"), [("tick", 0), ("run", 1)])
async def test_a_holder_that_is_paused_works_on_to_its_commit(
    store: Store, hold: Literal["tick", "run"], in_use: int
) -> None:
    held = await claimed_run(store, "a", concurrency_keys=[Key("k", hold)])
    await _line(store, "b")
    await store.set_run_paused("a", True, None, None)
    assert await _claimed(store) == []
    await commit(store, held, Continue())
    assert (await store.get_key("k")).in_use == in_use
    assert await _claimed(store) == ([] if in_use else ["b"])


async def test_a_woken_run_that_is_cancelled_passes_the_slot_on(store: Store) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b", "c", "d")
    await commit(store, held)
    await store.cancel_run("b", None, None, None)
    await store.delete_run("c", None, None)
    await _next_is(store, "d")


async def test_deleting_holders_and_the_parked_leaves_no_slot_taken(store: Store, tables: TablesOf) -> None:
    await claimed_run(store, "a", session_id="gone", concurrency_keys=["k", Key("m", "run")])
    await pending(store, "b", session_id="gone", concurrency_keys=["k"])
    await pending(store, "c", session_id="stays", concurrency_keys=["k"])
    assert await store.delete_session("gone", None, None) == 2
    await _next_is(store, "c")
    await store.delete_run("c", None, None)
    left = await tables()
    assert (len(left["ocean_keys"]), len(left["ocean_run_keys"])) == (1, 1), "only the names of the columns"


async def test_a_parent_that_ends_takes_its_children_out_of_the_line(store: Store) -> None:
    await pending(store, "mother")
    for child in ("c1", "c2", "c3"):
        await pending(store, child, parent_run_id="mother", on_parent_end="cancel", concurrency_keys=["k"], priority=0)
    await _line(store, "stranger")
    assert sorted(await _claimed(store, limit=10)) == ["c1", "mother"]
    await store.cancel_run("mother", None, None, None)
    await _next_is(store, "stranger")


async def test_a_tick_that_deletes_the_runs_of_its_clog_frees_what_they_held(store: Store) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b", "c")
    held = await claimed_run(store, "sweeper")
    await commit(store, held, Done(), Effects(delete_runs=[(CLOG, "a"), (CLOG, "b")]))
    await _next_is(store, "c")


async def test_a_run_created_in_a_tick_is_parked_behind_the_tick_itself(store: Store) -> None:
    held = await claimed_run(store, "a", concurrency_keys=["k"])
    await commit(store, held, Continue(), Effects(runs=[a_run("child", input=1, concurrency_keys=["k"])]))
    assert (await types(store, "child")) == ["run.created", "run.parked"]
    assert await _claimed(store) == ["child"]


async def test_an_id_that_is_used_again_has_only_its_new_keys(store: Store) -> None:
    await claimed_run(store, "a", concurrency_keys=["x", Key("y", "run")])
    await store.delete_run("a", None, None)
    again = await claimed_run(store, "a", concurrency_keys=["z"])
    assert again.run.concurrency_keys == (Key("z"),)
    assert [info.key for info in await store.list_keys("", 10)] == ["z"]


async def test_two_creations_under_one_dedupe_key_are_one_run_in_line(store: Store) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"])
    for _ in range(2):
        first = a_run("b", input=1, dedupe_key="d", concurrency_keys=["k"])
        assert (await store.create_run(first, None)).parked_on == "k"
    assert (await store.get_key("k")).parked == 1
    assert (await types(store, "b")) == ["run.created", "run.parked"]


async def test_a_clock_that_is_set_back_takes_no_run_out_of_line(store: Store, clock: ManualClock) -> None:
    await claimed_run(store, "a", concurrency_keys=["k"])
    await _line(store, "b", "c")
    clock.jump(-5_000)
    await store.cancel_run("a", None, None, None)
    assert await _claimed(store) == [], "it is woken, and its input is not available before its time"
    clock.advance(5_000)
    assert await _claimed(store) == ["b"]
    await store.cancel_run("b", None, None, None)
    await _next_is(store, "c")
