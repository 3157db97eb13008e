"""The tail: one reader for all followers; it blocks none, loses nothing, and leaves no task behind."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from bench.idle_poke import Meter
from ocean import Done, Event, Ok, Outcome, StoreBusy, Tick
from ocean.compose import Ocean
from ocean.events import tail as tails
from ocean.events.follower import FollowerState
from ocean.state.filters import FeedFilter
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World
from tests.lifecycle.acting import Script, let_others_go_on, log, stage, start, start_idle
from tests.races.arranging import until

pytestmark = pytest.mark.anyio


class Reader:
    """A task that reads a feed until it is stopped or the feed ends."""

    def __init__(self, feed: AsyncIterator[Event]) -> None:
        self.seen: list[Event] = []
        self._feed = feed
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._feed:
            self.seen.append(event)

    @property
    def seqs(self) -> list[int]:
        return [event.seq for event in self.seen]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def level(w: World, followers: int) -> None:
    """Wait until this many followers read from the tail."""

    def are_level() -> bool:
        joined = w.ocean._tail._all()
        return len(joined) == followers and all(each._state is FollowerState.LEVEL for each in joined)

    with anyio.fail_after(20):
        while not are_level():
            # Rounds of the event loop are not enough: checking a thousand followers starves the database's thread.
            await let_others_go_on(w)
    await let_others_go_on(w)


def readings(meter: Meter) -> list[str]:
    return [text for text in meter.statements if "FROM events" in text or "FROM ocean_log_floor" in text]


async def test_a_thousand_followers_cost_one_query_per_commit_and_none_while_nothing_happens() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        feeds: list[dict[str, Any]] = [{}, {"session_id": "s"}, {"run_id": run_id}, {"types": ["run.signalled"]}]
        readers = [Reader(w.ocean.follow(**feeds[i % 4], after=1)) for i in range(1_000)]
        await level(w, 1_000)
        assert isinstance(w.store, SqliteStore)
        meter = Meter()
        await w.store.database.on_writer(lambda db: db.set_trace_callback(meter.statements.append))
        await let_others_go_on(w)
        assert readings(meter) == []
        for count in (1, 2, 3):
            await w.ocean.signal(run_id, count)
            await until(lambda count=count: all(len(reader.seen) == count for reader in readers))  # type: ignore[misc]
        assert len(readings(meter)) == 3
        assert {tuple(reader.seqs) for reader in readers} == {(2, 3, 4)}
        for reader in readers:
            await reader.stop()


FEEDS: list[dict[str, Any]] = [
    {},
    {"session_id": "s1"},
    {"session_id": "s2", "clog_id": "c"},
    {"clog_id": "d"},
    {"types": ["run.done", "mine"]},
    {"session_id": "s1", "types": ["tick.committed"]},
    {"session_id": "nobody's"},
]


async def test_live_events_equal_those_in_the_database() -> None:
    async def emit_events(tick: Tick) -> Outcome:
        await tick.emit("mine", 1)
        return Done()

    async with stage(Script(emit_events), Script(Done(), clog_id="d")) as w:
        readers = [Reader(w.ocean.follow(**each)) for each in FEEDS]
        await level(w, len(FEEDS))
        for session_id in ("s1", "s2"):
            for clog_id in ("c", "d"):
                run_id = await start(w, session_id=session_id, clog_id=clog_id)
        readers.append(Reader(w.ocean.follow(correlation_id=run_id)))
        await level(w, len(readers))
        await w.drain()
        for reader, each in zip(readers, [*FEEDS, {"correlation_id": run_id}], strict=True):
            wanted = await w.ocean.read_events(**each)
            await until(lambda wanted=wanted, reader=reader: len(reader.seen) >= len(wanted))  # type: ignore[misc]
            assert reader.seen == wanted
            where = replace(FeedFilter(), **each | {"types": tuple(each.get("types", ()))})
            assert [event for event in await log(w) if where.has(event)] == wanted
            await reader.stop()


@pytest.mark.parametrize("filtered", [[], ["run.created"]])
async def test_a_live_feed_of_a_run_ends_with_the_run_for_all_its_followers(filtered: list[str]) -> None:
    async with stage(Script(Done())) as w:
        run_id, other = await start(w), await start_idle(w)
        readers = [Reader(w.ocean.follow(run_id, types=filtered)) for _ in range(3)]
        stays = Reader(w.ocean.follow(other))
        await level(w, 4)
        await w.drain()
        with anyio.fail_after(20):
            await asyncio.wait([reader.task for reader in readers])
        for reader in readers:
            assert reader.seen == await w.ocean.read_events(run_id, types=filtered)
        assert not stays.task.done()
        await stays.stop()


@pytest.mark.sqlite
async def test_the_tail_runs_only_while_there_are_followers() -> None:
    """Counts tasks, so it does not run on PostgreSQL, whose connection has its own."""
    async with stage(Script()) as w:
        await start_idle(w)
        before = len(asyncio.all_tasks())
        for _ in range(2):
            one, two = Reader(w.ocean.follow()), Reader(w.ocean.follow(session_id="s"))
            await level(w, 2)
            await one.stop()
            assert w.ocean._tail.is_running
            await two.stop()
            assert (w.ocean._tail.followers, w.ocean._tail.is_running) == (0, False)
            await until(lambda: len(asyncio.all_tasks()) == before)


async def test_a_feed_closed_in_the_middle_is_no_longer_a_follower() -> None:
    async with stage(Script()) as w:
        await start_idle(w)
        async for _ in w.ocean.follow():
            break
        await until(lambda: not w.ocean._tail.followers and not w.ocean._tail.is_running)


async def test_a_slow_follower_falls_behind_alone_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tails, "PAGE", 7)
    async with stage(Script()) as w:
        w.ocean._tail = tails.Tail(w.store, w.clock, kept=10)
        await start_idle(w)
        slow = w.ocean.follow()
        seqs = [(await anext(slow)).seq, *[(await _next(slow, w)).seq for _ in range(2)]]
        (follower,) = w.ocean._tail._all()
        quick = Reader(w.ocean.follow())
        await until(lambda: quick.seqs == [1, 2, 3])
        for count in range(1, 41):
            await start_idle(w)
            await until(lambda count=count: len(quick.seqs) == 3 + count)  # type: ignore[misc]
            assert len(follower._kept) <= 10
        assert follower.is_behind
        with anyio.fail_after(20):
            seqs += [(await anext(slow)).seq for _ in range(40)]
        assert seqs == quick.seqs == list(range(1, 44))
        assert (await _next(slow, w)).seq == 44
        await quick.stop()
        await slow.aclose()  # type: ignore[attr-defined]


async def _next(feed: AsyncIterator[Event], w: World) -> Event:
    """Return the next event, which is created while the feed is awaited."""
    made = asyncio.create_task(start_idle(w))
    event = await anext(feed)
    await made
    return event


async def test_a_narrow_follower_that_falls_behind_is_not_reset_for_events_of_other_feeds() -> None:
    async with stage(Script()) as w:
        w.ocean._tail = tails.Tail(w.store, w.clock, kept=1)
        await start_idle(w)
        reader = Reader(w.ocean.follow(session_id="mine"))
        await level(w, 1)
        everything = Reader(w.ocean.follow())
        for _ in range(3):
            await start_idle(w)
        await until(lambda: len(everything.seen) == 4)
        w.clock.advance(1_000)
        await w.ocean.sweep(events_older_than_ms=500)
        await everything.stop()
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: start_idle(w, session_id="mine"))
        await until(lambda: len(reader.seen) == 5)
        assert [event.type for event in reader.seen] == ["run.created"] * 5
        await reader.stop()


async def test_retention_that_is_faster_than_the_tail_causes_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(Script()) as w:
        await start_idle(w)
        reader = Reader(w.ocean.follow())
        await level(w, 1)
        read, go_on = w.store.read_events, anyio.Event()

        async def read_late(*args: Any) -> list[Event]:
            await go_on.wait()
            return await read(*args)

        monkeypatch.setattr(w.store, "read_events", read_late)
        await start_idle(w)
        w.clock.advance(1_000)
        await w.ocean.sweep(events_older_than_ms=500)
        await start_idle(w)
        go_on.set()
        await until(lambda: len(reader.seen) == 3)
        assert [(event.type, event.seq) for event in reader.seen] == [
            ("run.created", 1),
            ("reset", 2),
            ("run.created", 3),
        ]
        await reader.stop()


@pytest.mark.parametrize(("cut", "wanted"), [("before", ["reset 2", "3"]), ("after", ["reset 1", "2", "3"])])
async def test_a_page_that_is_read_while_the_log_is_cut_begins_with_a_reset_and_is_in_order(
    cut: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(Script()) as w:
        await start_idle(w, session_id="other")
        await start_idle(w)
        w.clock.advance(1_000)
        await start_idle(w)
        read = w.store.read_events

        async def read_and_cut(*args: Any) -> list[Event]:
            page = await read(*args)
            await w.ocean.sweep(events_older_than_ms=500)
            return page if cut == "after" else await read(*args)

        monkeypatch.setattr(w.store, "read_events", read_and_cut)
        page = await w.ocean.read_events(session_id="s")
        assert [f"{'reset ' if event.type == 'reset' else ''}{event.seq}" for event in page] == wanted


async def test_the_tail_survives_a_failed_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(Script()) as w:
        await start_idle(w)
        reader = Reader(w.ocean.follow())
        await level(w, 1)
        failed = _failing(w, monkeypatch, times=2)
        await start_idle(w)
        await until(lambda: failed() == 1)
        await _time_passes_until(w, lambda: len(reader.seen) == 2)
        assert (reader.seqs, failed()) == ([1, 2], 2)
        await reader.stop()


async def test_followers_get_a_lasting_error_and_the_next_one_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage(Script()) as w:
        await start_idle(w)
        reader = Reader(w.ocean.follow())
        await level(w, 1)
        failed = _failing(w, monkeypatch, times=tails.TRIES)
        await start_idle(w)
        await _time_passes_until(w, reader.task.done)
        assert isinstance(reader.task.exception(), StoreBusy)
        assert failed() == tails.TRIES
        again = Reader(w.ocean.follow(after=1))
        await until(lambda: again.seqs == [2])
        await again.stop()


def _failing(w: World, monkeypatch: pytest.MonkeyPatch, times: int) -> Any:
    read, failed = w.store.read_events, 0

    async def fail_at_first(*args: Any) -> list[Event]:
        nonlocal failed
        if failed < times:
            failed += 1
            raise StoreBusy("busy")
        return await read(*args)

    monkeypatch.setattr(w.store, "read_events", fail_at_first)
    return lambda: failed


async def _time_passes_until(w: World, condition: Any) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.lowlevel.checkpoint()
            w.clock.advance(100)


async def test_commits_of_another_ocean_on_the_same_file_are_delivered_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ocean.db'}"
    async with stage(Script(), url=url) as w, Ocean.open(url, clogs=[Script()], clock=w.clock) as other:
        reader = Reader(w.ocean.follow())
        await level(w, 1)
        for count in (1, 2, 3):
            await other.create_run(session_id="s", clog_id="c")
            await until(lambda count=count: len(reader.seen) == count)  # type: ignore[misc]
        assert reader.seqs == [1, 2, 3]
        await reader.stop()


async def test_closing_an_ocean_stops_its_tail() -> None:
    before = len(asyncio.all_tasks())
    async with stage(Script()) as w:
        await start_idle(w)
        readers = [Reader(w.ocean.follow()), Reader(w.ocean.follow("nobody"))]
        await until(lambda: readers[0].seqs == [1])
    await until(lambda: all(reader.task.done() for reader in readers))
    assert [reader.task.exception() is not None for reader in readers] == [True, True]
    assert len(asyncio.all_tasks()) == before


async def test_quiet_runs_cost_nothing_when_others_commit() -> None:
    async with stage(Script(Ok())) as w:
        run_id = await start_idle(w)
        readers = [Reader(w.ocean.follow(run_id)) for _ in range(2)]
        await level(w, 2)
        wakes = [each._woken.is_set() for each in w.ocean._tail._all()]
        await start_idle(w)
        await let_others_go_on(w)
        assert [each._woken.is_set() for each in w.ocean._tail._all()] == wakes == [False, False]
        for reader in readers:
            await reader.stop()


def events(*seqs: int) -> list[Event]:
    return [Event(seq, 0, "x", None) for seq in seqs]


async def test_events_queued_for_a_follower_are_not_overtaken_before_it_wakes() -> None:
    taken: list[Event] = []
    is_willing = False

    def take(offered: Sequence[Event]) -> bool:
        taken.extend(offered if is_willing else ())
        return is_willing

    async with stage(Script()) as w:
        with w.ocean._tail.joined(FeedFilter(), 0, take) as follower, anyio.fail_after(20):
            await follower.catch_up()
            follower.level(0)
            waiter = asyncio.create_task(follower.next())
            await until(lambda: follower._taker is not None)
            follower.offer(events(1))
            is_willing = True
            follower.offer(events(2))
            assert (taken, await waiter) == ([], events(1, 2))
            waiter = asyncio.create_task(follower.next())
            await until(lambda: follower._taker is not None)
            follower.offer(events(3, 4))
            assert (taken, follower.after) == (events(3, 4), 4)
            waiter.cancel()
            await asyncio.wait([waiter])
            assert follower._taker is None
            follower.offer(events(5))
            assert (taken, await follower.next()) == (events(3, 4), events(5))


async def test_a_follower_that_cannot_take_events_at_once_gets_them_later_and_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(offered: Sequence[Event]) -> bool:
        raise ValueError("not now")

    async with stage(Script()) as w:
        seen: list[int] = []

        async def follow() -> None:
            async for offered in w.ocean.follow_in_parts(FeedFilter(), 0, fail):
                seen.extend(event.seq for event in offered)

        failing, other = asyncio.create_task(follow()), Reader(w.ocean.follow())
        await level(w, 2)
        for count in (1, 2):
            await start_idle(w)
            await until(lambda count=count: len(seen) == len(other.seen) == count)  # type: ignore[misc]
        assert (seen, other.seqs) == ([1, 2], [1, 2])
        assert caplog.text.count("could not be taken at once") == 2
        await other.stop()
        failing.cancel()
        await asyncio.wait([failing])


async def test_a_follower_that_falls_behind_resumes_right_before_its_queued_events() -> None:
    """Earlier events may have been deleted, and were not of this feed."""
    async with stage(Script()) as w:
        w.ocean._tail = tails.Tail(w.store, w.clock, kept=1)
        with w.ocean._tail.joined(FeedFilter()) as follower:
            await follower.catch_up()
            follower.level(0)
            follower.offer(events(10))
            follower.offer(events(12))
            assert (follower.is_behind, follower.after) == (True, 9)
