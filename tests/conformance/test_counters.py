"""Counters in a store: takes are exact, refusals leave no trace, commits take all or nothing."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed, Contended
from ocean.kernel.store.events import SweepAsk
from ocean.kernel.store.runs import CallConflict, CallDone, Request
from ocean.state.counters import Take, Taken
from ocean.state.effects import Effects
from ocean.state.errors import InvalidValue, RequestKeyReused, RunEnded
from ocean.state.outcomes import Done, Ok, Retry
from ocean.testing import ManualClock
from tests.conformance.kit import (
    GLOBAL,
    TablesOf,
    a_call,
    an_ask,
    claimed_run,
    commit,
    commit_of,
    ended_run,
    events,
    row,
    writes,
)

pytestmark = pytest.mark.anyio

DAY = 86_400_000
CAP = Take("cap", 1, 2)


def takes(*takes: Take) -> Effects:
    return Effects(takes=list(takes))


async def used(store: Store, take: Take) -> int:
    return (await store.look_at_counter([Take(take.key, 0, take.limit, take.per_ms, take.refill)])).used


async def test_a_cap_gives_exactly_what_it_has(store: Store) -> None:
    results = [await store.take(CAP, None) for _ in range(4)]
    assert results == [
        Taken(True, 1, 2, 1, 0),
        Taken(True, 2, 2, 0, 0),
        Taken(False, 2, 2, 0, None),
        Taken(False, 2, 2, 0, None),
    ]


async def test_a_peek_and_a_refused_take_write_nothing(store: Store, tables: TablesOf) -> None:
    empty = await tables()
    assert (await store.look_at_counter([CAP])).ok
    assert await tables() == empty
    await store.take(Take("cap", 2, 2), None)
    full = await tables()
    assert not await store.take(CAP, Request("again", "h"))
    assert not await store.look_at_counter([CAP])
    assert await tables() == full


async def test_a_peek_counts_the_takes_before_it(store: Store) -> None:
    assert await store.look_at_counter([CAP, CAP]) == Taken(True, 2, 2, 0, 0)
    assert await store.look_at_counter([CAP, CAP, CAP]) == Taken(False, 2, 2, 0, None)
    await store.take(CAP, None)
    assert not await store.look_at_counter([CAP, CAP, Take("cap", 0, 2)])


async def test_a_bucket_refills_by_the_stores_clock(store: Store, clock: ManualClock) -> None:
    bucket = Take("bucket", 2, 2, 1_000)
    assert await store.take(bucket, None)
    assert (await store.take(bucket, None)).retry_after_ms == 1_000
    clock.advance(999)
    assert not await store.take(bucket, None)
    clock.advance(1)
    assert await store.take(bucket, None)


async def test_a_request_key_repeats_the_first_grant_and_no_refusal(store: Store, clock: ManualClock) -> None:
    cooldown, first, second = Take("cool", 1, 1, 1_000), Request("first", "h"), Request("second", "h")
    granted = await store.take(cooldown, first)
    assert not await store.take(cooldown, second)
    assert await store.take(cooldown, first) == granted
    clock.advance(1_000)
    assert await store.take(cooldown, second)
    assert not await store.take(cooldown, None)
    with pytest.raises(RequestKeyReused):
        await store.take(cooldown, Request("first", "another body"))


async def test_a_counter_that_is_reset_may_be_of_another_kind(store: Store) -> None:
    await store.take(CAP, None)
    with pytest.raises(InvalidValue, match="'cap' is of kind total"):
        await store.take(Take("cap", 1, 5, DAY, "at_once"), None)
    reset = Request("reset", "h")
    assert await store.reset_counter("cap", reset)
    assert await store.reset_counter("cap", reset), "the first result"
    assert not await store.reset_counter("cap", None)
    assert await store.take(Take("cap", 1, 5, DAY, "at_once"), None) == Taken(True, 1, 5, 4, 0)


async def test_a_tick_takes_with_its_commit(store: Store) -> None:
    held = await claimed_run(store)
    assert await used(store, CAP) == 0
    await commit(store, held, Ok(), takes(CAP, Take("sum", 7)))
    assert (await used(store, CAP), await used(store, Take("sum"))) == (1, 7)


async def test_repeating_a_commit_that_stood_takes_nothing_more(store: Store) -> None:
    held = await claimed_run(store)
    first = await commit(store, held, Done(), takes(CAP))
    assert await commit(store, held, Done(), takes(CAP)) == first
    assert await used(store, CAP) == 1


async def test_a_retry_takes_nothing(store: Store) -> None:
    held = await claimed_run(store)
    await commit(store, held, Retry("no"), takes(CAP))
    assert await used(store, CAP) == 0


async def test_a_refused_take_refuses_the_whole_commit_and_names_every_such_key(store: Store, tables: TablesOf) -> None:
    held = await claimed_run(store)
    for key in ("full", "also full"):
        await store.take(Take(key, 2, 2), None)
    wanted = writes((GLOBAL, 0, "1"))
    wanted.takes += [CAP, Take("full", 1, 2), Take("also full", 1, 2), Take("full", 1, 2)]
    before = await tables()
    no = Taken(False, 2, 2, 0, None)
    assert await commit(store, held, Ok(), wanted) == Contended(2, False, {"full": no, "also full": no})
    after = await tables()
    assert {name for name in before if before[name] != after[name]} == {
        "ocean_ticks",
        "events",
        "event_cursor",
        "runs",
    }
    assert (await row(store, GLOBAL)).version == 0
    restarted = (await events(store, "r"))[-1]
    assert (restarted.type, restarted.call) == ("tick.restarted", 2)
    assert restarted.payload == {"because": "counter", "attempt": 0, "keys": ["full", "also full"]}
    (tick,) = await store.list_ticks("r", 0, 10)
    assert (tick.calls, tick.conflicts) == (2, 0)
    assert isinstance(await store.commit_tick(commit_of(held, Ok(), takes(CAP), call=2)), Committed)


async def test_takes_of_one_commit_add_up(store: Store) -> None:
    held = await claimed_run(store)
    result = await commit(store, held, Ok(), takes(CAP, CAP, CAP))
    assert result == Contended(2, False, {"cap": Taken(False, 2, 2, 0, None)})
    assert await used(store, CAP) == 0


async def test_rows_that_moved_are_found_before_counters(store: Store) -> None:
    held = await claimed_run(store)
    await store.take(Take("cap", 2, 2), None)
    await store.commit_call(a_call(writes((GLOBAL, 0, "1")), run_id=None))
    wanted = writes((GLOBAL, 0, "2"))
    wanted.takes.append(CAP)
    assert await commit(store, held, Ok(), wanted) == Contended(2, False)


async def test_a_counter_of_another_kind_is_refused_in_the_commit_too(store: Store) -> None:
    held = await claimed_run(store)
    await store.take(CAP, None)
    with pytest.raises(InvalidValue, match="'cap' is of kind total"):
        await commit(store, held, Ok(), takes(Take("cap", 1, 5, DAY)))


async def test_a_direct_call_takes_with_its_commit_or_gets_the_refused_counters(store: Store, tables: TablesOf) -> None:
    for _ in range(2):
        assert isinstance(await store.commit_call(a_call(takes(CAP), run_id=None)), CallDone)
    before = await tables()
    refused = await store.commit_call(a_call(takes(CAP), run_id=None, request=Request("k", "h")))
    assert refused == CallConflict({"cap": Taken(False, 2, 2, 0, None)})
    assert await tables() == before


async def test_a_direct_call_on_an_ended_run_takes_nothing(store: Store) -> None:
    await ended_run(store, "r", Done())
    with pytest.raises(RunEnded):
        await store.commit_call(a_call(takes(CAP)))
    assert await used(store, CAP) == 0


async def test_counters_survive_the_deletion_of_runs_and_sessions(store: Store) -> None:
    held = await claimed_run(store)
    await commit(store, held, Done(), takes(CAP))
    await store.delete_session("s", None, None)
    assert await used(store, CAP) == 1


async def test_a_sweep_removes_counters_that_are_worth_nothing_in_batches(store: Store, clock: ManualClock) -> None:
    for i in range(5):
        await store.take(Take(f"cool {i}", 1, 1, 1_000 + i), None)
    await store.take(CAP, None)
    await store.take(Take("day", 1, 5, DAY, "at_once"), None)
    clock.advance(1_003)
    ask = SweepAsk(None, None, None, 3)
    swept = [await store.sweep(ask) for _ in range(2)]
    assert [(each.counters, each.more) for each in swept] == [(3, True), (1, False)]
    clock.advance(DAY)
    assert [(await store.sweep(ask)).counters for _ in range(2)] == [2, 0]
    assert await used(store, CAP) == 1


async def test_a_tick_after_a_refusal_keeps_its_lock_and_its_inputs(store: Store) -> None:
    held = await claimed_run(store, input={"a": 1})
    await store.take(Take("cap", 2, 2), None)
    await commit(store, held, Ok(), takes(CAP))
    info = await store.get_run("r")
    assert info is not None
    assert (info.status, info.attempt, info.pending_count) == ("active", 0, 1)
    assert await store.claim_due(an_ask()) == []
