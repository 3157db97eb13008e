"""The log: no gaps per run, one order for all readers, read by feed and page, truncated at the front only."""

import pytest

from ocean.kernel.store import Store
from ocean.kernel.store.events import StepStreamed, SweepAsk
from ocean.kernel.store.runs import Request
from ocean.state.effects import Effects, NewEvent
from ocean.state.filters import FeedFilter
from ocean.state.outcomes import Continue, Done, Ok
from ocean.state.records import Event
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    OTHER_CLOG,
    TablesOf,
    a_run,
    a_signal,
    claimed_run,
    commit,
    ended_run,
    events,
    pending,
    run_tick,
    types,
)

pytestmark = pytest.mark.anyio


async def _a_little_history(store: Store) -> None:
    for number in range(4):
        await pending(store, f"r{number}", session_id=f"s{number % 2}", clog_id=(CLOG, OTHER_CLOG)[number // 2])
        await store.deliver_signal(a_signal(f"r{number}"), None)
        await run_tick(store, f"r{number}", Continue())


async def _pages(store: Store, where: FeedFilter, limit: int) -> list[Event]:
    found: list[Event] = []
    while page := await store.read_events(where, found[-1].seq if found else 0, limit):
        assert len(page) <= limit
        found += page
    return found


FEEDS = [
    FeedFilter(),
    FeedFilter(run_id="r1"),
    FeedFilter(session_id="s1"),
    FeedFilter(clog_id=OTHER_CLOG),
    FeedFilter(correlation_id="r2"),
    FeedFilter(types=("run.created", "tick.committed")),
    FeedFilter(session_id="s0", types=("run.signalled",)),
    FeedFilter(run_id="r1", session_id="s0"),
]


async def test_the_pages_of_a_feed_joined_are_its_events_once_each_in_order(store: Store) -> None:
    await _a_little_history(store)
    everything = await events(store)
    for where in FEEDS:
        wanted = [event for event in everything if _is_of(event, where)]
        for limit in (1, 3, 100):
            assert await _pages(store, where, limit) == wanted


async def test_the_newest_pages_joined_are_the_same_events_backwards(store: Store) -> None:
    await _a_little_history(store)
    everything = await events(store)
    for where in FEEDS:
        wanted = [event for event in reversed(everything) if _is_of(event, where)]
        for limit in (1, 3, 100):
            found: list[Event] = []
            while page := await store.read_newest_events(where, found[-1].seq if found else None, limit):
                assert len(page) <= limit
                found += page
            assert found == wanted
    assert await store.read_newest_events(FeedFilter(), 0, 10) == []


def _is_of(event: Event, where: FeedFilter) -> bool:
    names = ("run_id", "session_id", "clog_id", "correlation_id")
    fits = all(getattr(where, name) in (None, getattr(event, name)) for name in names)
    return fits and (not where.types or event.type in where.types)


async def test_a_runs_numbers_are_dense_and_cursors_rise(store: Store) -> None:
    await _a_little_history(store)
    everything = await events(store)
    assert [event.seq for event in everything] == sorted({event.seq for event in everything})
    for number in range(4):
        numbers = [event.run_seq for event in everything if event.run_id == f"r{number}"]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_what_caused_an_event_is_named_by_its_id(store: Store) -> None:
    await store.create_run(a_run(), None)
    await store.deliver_signal(a_signal(), None)
    await run_tick(store, "r", Ok(), Effects(events=[NewEvent("said", "{}", CLOG)]))
    logged = await events(store, "r")
    assert [event.type for event in logged] == ["run.created", "run.signalled", "said", "tick.committed"]
    assert [event.causation_id for event in logged] == [None, None, logged[1].id, logged[1].id]


async def test_streamed_events_are_visible_before_the_commit_and_carry_the_call(store: Store) -> None:
    held = await claimed_run(store)
    await store.append_streamed(held.lock, 1, 1, [NewEvent("token", f'"{text}"', CLOG) for text in "ab"])
    streamed = [event for event in await events(store, "r") if event.type == "token"]
    assert [(event.payload, event.tick, event.call) for event in streamed] == [("a", 1, 1), ("b", 1, 1)]
    await commit(store, held, Done())
    assert [event.run_seq for event in await events(store, "r")] == [1, 2, 3, 4, 5]


async def test_a_step_and_the_event_that_it_is_stored_are_written_together_and_once(store: Store) -> None:
    held = await claimed_run(store)
    await store.append_streamed(held.lock, 1, 1, [NewEvent("token", '"a"', CLOG, "c/say")])
    for call in (1, 2):
        stored = StepStreamed(1, call, NewEvent("tick.step_stored", f"{call}", CLOG, "c/say"))
        assert await store.store_step(held.lock, 0, "say", '"first"', stored) == '"first"'
    assert await store.store_step(held.lock, 0, "think", "2") == "2"
    await commit(store, held, Done())
    logged = [(event.run_seq, event.type, event.tick, event.call, event.step) for event in await events(store, "r")]
    assert logged[:4] == [
        (1, "run.created", None, None, None),
        (2, "token", 1, 1, "c/say"),
        (3, "tick.step_stored", 1, 1, "c/say"),
        (4, "tick.committed", 1, 1, None),
    ]
    token, marker = (await events(store, "r"))[1:3]
    assert (marker.clog_id, marker.causation_id) == (token.clog_id, token.causation_id)


async def test_the_bounds_are_what_retention_removed_and_the_highest_cursor(store: Store) -> None:
    assert await store.event_bounds() == (0, 0)
    await _a_little_history(store)
    everything = await events(store)
    assert await store.event_bounds() == (0, everything[-1].seq)


async def test_retention_removes_a_prefix_and_the_cursors_above_it_stay(store: Store, clock: ManualClock) -> None:
    await _a_little_history(store)
    old = await events(store)
    clock.advance(100)
    await pending(store, "young")
    swept = await store.sweep(SweepAsk(clock.now(), None, None, 1_000))
    assert (swept.events, swept.more) == (len(old), False)
    assert [event.run_id for event in await events(store)] == ["young"]
    assert await store.event_bounds() == (old[-1].seq, old[-1].seq + 1)


async def test_no_cursor_comes_back_after_all_events_are_gone(store: Store, clock: ManualClock) -> None:
    await pending(store, "old")
    (first,) = await events(store)
    clock.advance(1)
    await store.sweep(SweepAsk(clock.now(), None, None, 10))
    assert await store.event_bounds() == (first.seq, first.seq)
    await pending(store, "new")
    (second,) = await events(store)
    assert second.seq > first.seq


async def test_an_old_event_behind_a_young_one_stays(store: Store, clock: ManualClock) -> None:
    clock.jump(1_000)
    await pending(store, "young")
    clock.jump(-1_000)
    await pending(store, "old")
    swept = await store.sweep(SweepAsk(clock.now() + 500, None, None, 10))
    assert swept.events == 0
    clock.jump(1_000)


async def test_sweeping_events_goes_in_bounded_batches(store: Store, clock: ManualClock) -> None:
    for number in range(5):
        await pending(store, f"r{number}")
    clock.advance(1)
    seen = []
    for _ in range(4):
        swept = await store.sweep(SweepAsk(clock.now(), None, None, 2))
        seen.append((swept.events, swept.more))
    assert seen == [(2, True), (2, True), (1, False), (0, False)]


async def test_sweeping_runs_takes_ended_ones_only_and_never_the_parent_of_a_living_child(
    store: Store, clock: ManualClock
) -> None:
    await ended_run(store, "old", Done())
    await pending(store, "alive")
    await pending(store, "mother")
    await pending(store, "child", parent_run_id="mother")
    await run_tick(store, "mother", Done())
    clock.advance(100)
    await ended_run(store, "young", Done())
    swept = await store.sweep(SweepAsk(None, clock.now(), None, 100))
    assert swept.runs == 1
    assert [await store.get_run(run_id) is None for run_id in ("old", "alive", "mother", "child", "young")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert (await types(store, "old"))[-1] == "run.deleted"


async def test_a_parent_goes_after_its_ended_children(store: Store, clock: ManualClock) -> None:
    await ended_run(store, "mother", Done())
    await ended_run(store, "child", Done(), parent_run_id="mother")
    clock.advance(1)
    sweeps = [await store.sweep(SweepAsk(None, clock.now(), None, 100)) for _ in range(3)]
    assert [(swept.runs, swept.more) for swept in sweeps] == [(1, True), (1, True), (0, False)]
    assert [await store.get_run(run_id) for run_id in ("mother", "child")] == [None, None]


async def test_sweeping_runs_and_requests_goes_in_bounded_batches(store: Store, clock: ManualClock) -> None:
    for number in range(3):
        await store.create_run(a_run(f"r{number}", input=1), Request(f"key{number}", "hash"))
        await run_tick(store, f"r{number}", Done())
    clock.advance(1)
    swept = await store.sweep(SweepAsk(None, clock.now(), clock.now(), 2))
    assert (swept.events, swept.runs, swept.requests, swept.more) == (0, 2, 2, True)
    swept = await store.sweep(SweepAsk(None, clock.now(), clock.now(), 2))
    assert (swept.runs, swept.requests) == (1, 1)
    swept = await store.sweep(SweepAsk(None, clock.now(), clock.now(), 2))
    assert (swept.runs, swept.requests, swept.more) == (0, 0, False)
    assert await store.stored_answer(Request("key0", "hash")) is None


async def test_a_sweep_that_names_nothing_removes_nothing(store: Store, clock: ManualClock, tables: TablesOf) -> None:
    await ended_run(store, "r", Done())
    clock.advance(10_000)
    before = await tables()
    swept = await store.sweep(SweepAsk(None, None, None, 10))
    assert (swept.events, swept.runs, swept.requests, swept.more) == (0, 0, 0, False)
    assert await tables() == before


async def test_commits_are_counted_and_waited_for(store: Store) -> None:
    seen = store.commits_seen()
    await pending(store)
    assert await store.next_commit(seen) > seen
