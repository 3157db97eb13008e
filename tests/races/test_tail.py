"""Between reading the past and the tail: commits, cuts and cancellations at every step of the hand-over."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from ocean import Continue, Done, Event
from ocean.events import feed as feeds
from ocean.events import tail as tails
from ocean.state.filters import FeedFilter
from ocean.testing import World
from tests.lifecycle.acting import Script, let_others_go_on, log, stage, start, start_idle
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

STEPS = 7
"""Queries until a feed of one run has caught up."""


class Meddler:
    """Run a function before or after the n-th query that followers and the tail make."""

    def __init__(
        self, w: World, monkeypatch: pytest.MonkeyPatch, at: int, when: str, act: Callable[[], Awaitable[Any]]
    ) -> None:
        self.trips = 0
        self._at, self._when, self._act, self._is_acting = at, when, act, False
        for name in ("event_bounds", "read_events", "get_run"):
            monkeypatch.setattr(w.store, name, self._meddled(getattr(w.store, name)))

    def _meddled(self, trip: Any) -> Any:
        async def travel(*args: Any) -> Any:
            if self._is_acting:
                return await trip(*args)
            self.trips += 1
            is_now = self.trips == self._at
            if is_now and self._when == "before":
                await self._do()
            result = await trip(*args)
            if is_now and self._when == "after":
                await self._do()
            return result

        return travel

    async def _do(self) -> None:
        self._is_acting = True
        await self._act()
        self._is_acting = False


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, STEPS + 1))
async def test_a_commit_at_any_step_of_the_hand_over_is_delivered_once(
    at: int, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(Script()) as w:
        for _ in range(3):
            await start_idle(w)
        meddler = Meddler(w, monkeypatch, at, when, lambda: start_idle(w))
        seqs: list[int] = []

        async def follow() -> None:
            async for event in w.ocean.follow():
                seqs.append(event.seq)

        reader = asyncio.create_task(follow())
        await until(lambda: len(seqs) >= 3)
        await let_others_go_on(w)
        await start_idle(w)
        last = 5 if meddler.trips >= at else 4
        await until(lambda: len(seqs) >= last)
        await let_others_go_on(w)
        assert seqs == list(range(1, len(await log(w)) + 1))
        reader.cancel()
        await asyncio.wait([reader])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, STEPS + 3))
async def test_a_run_that_ends_at_any_step_of_the_hand_over_ends_its_feed(
    at: int, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(Script(Continue(), Done())) as w:
        run_id = await start(w)
        Meddler(w, monkeypatch, at, when, w.drain)
        followed: list[Event] = []

        async def follow() -> None:
            async for event in w.ocean.follow(run_id):
                followed.append(event)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await let_others_go_on(w)
                await w.drain()
        assert followed == await log(w, run_id)
        assert followed[-1].type == "run.done"


@pytest.mark.parametrize("at", range(1, STEPS + 1))
async def test_a_follower_cancelled_at_any_step_leaves_nothing_behind(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        before = len(asyncio.all_tasks())

        async def cancel() -> None:
            reader.cancel()

        Meddler(w, monkeypatch, at, "before", cancel)

        async def follow() -> None:
            async for _ in w.ocean.follow(run_id):
                pass

        reader = asyncio.create_task(follow())
        await let_others_go_on(w)
        reader.cancel()
        await asyncio.wait([reader])
        await until(lambda: len(asyncio.all_tasks()) == before)
        assert (w.ocean._tail.followers, w.ocean._tail.is_running) == (0, False)


async def test_followers_that_come_and_go_while_the_log_grows_see_no_gap_or_duplicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small pages and small buffers, so that all fall behind, catch up, leave and come back all the time."""
    monkeypatch.setattr(tails, "PAGE", 3)
    monkeypatch.setattr(feeds, "PAGE", 4)
    total, followers = 300, 12
    async with stage(Script()) as w:
        w.ocean._tail = tails.Tail(w.store, w.clock, kept=5)

        async def follow(stay: int, seqs: list[int]) -> None:
            while len(seqs) < total:
                left = stay
                async for event in w.ocean.follow(after=seqs[-1] if seqs else 0):
                    seqs.append(event.seq)
                    left -= 1
                    if not left or len(seqs) == total:
                        break
                    if event.seq % stay == 0:
                        # Slow: others continue meanwhile.
                        await let_others_go_on(w)

        joined: list[list[int]] = [[] for _ in range(followers)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number, seqs in enumerate(joined):
                    tasks.start_soon(follow, number * 5 + 1, seqs)
                for _ in range(total):
                    await start_idle(w)
        assert all(seqs == list(range(1, total + 1)) for seqs in joined)
        await until(lambda: not w.ocean._tail.followers)


async def test_events_gathered_for_a_follower_are_delivered_together() -> None:
    async with stage(Script()) as w:
        run_id = await start_idle(w)
        where = FeedFilter(run_id=run_id)
        async with aclosing(w.ocean.follow_in_parts(where, 0)) as slow:
            assert [event.type for event in await anext(slow)] == ["run.created"]
            async with aclosing(w.ocean.follow_in_parts(where, 0)) as quick, anyio.create_task_group() as tasks:
                received: list[int] = []

                async def take_the_first() -> None:
                    received.extend(event.seq for event in await anext(slow))

                tasks.start_soon(take_the_first)
                await anext(quick)
                await w.ocean.signal(run_id)
                await until(lambda: bool(received))
                for _ in range(9):
                    await w.ocean.signal(run_id)
                seen = 0
                while seen < 10:
                    seen += len(await anext(quick))
            # The tail delivers to all followers at once: what the quick one has read is queued for the slow one.
            assert [event.seq for event in await anext(slow)] == [received[0] + n for n in range(1, 10)]


class Listed:
    """Take some events at once, at random, into the list that the follower fills with the rest."""

    def __init__(self, dice: random.Random, willing: float) -> None:
        self.seqs: list[int] = []
        self.at_once = 0
        self._dice = dice
        self._willing = willing

    def take(self, events: Sequence[Event]) -> bool:
        if self._dice.random() >= self._willing:
            return False
        self.at_once += len(events)
        self.seqs += [event.seq for event in events]
        return True

    async def follow(self, w: World) -> None:
        async for events in w.ocean.follow_in_parts(FeedFilter(), 0, self.take):
            for event in events:
                self.seqs.append(event.seq)
                if self._dice.random() < 0.2:
                    # Slow: events that arrive meanwhile must not overtake the rest of these.
                    await let_others_go_on(w)


@pytest.mark.parametrize("seed", range(3))
async def test_events_taken_at_once_neither_overtake_nor_duplicate_those_the_follower_takes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small pages and small buffers again: these followers also fall behind and catch up."""
    monkeypatch.setattr(tails, "PAGE", 3)
    monkeypatch.setattr(feeds, "PAGE", 4)
    total, dice = 150, random.Random(seed)
    async with stage(Script()) as w:
        w.ocean._tail = tails.Tail(w.store, w.clock, kept=5)
        listed = [Listed(random.Random(f"{seed}:{number}"), number / 5) for number in range(6)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for each in listed:
                    tasks.start_soon(each.follow, w)
                for _ in range(total // 5):
                    async with anyio.create_task_group() as together:
                        for _ in range(5):
                            together.start_soon(start_idle, w)
                    if dice.random() < 0.5:
                        await until(lambda: all(each._taker is not None for each in w.ocean._tail._all()))
                await until(lambda: all(len(each.seqs) >= total for each in listed))
                await let_others_go_on(w)
                tasks.cancel_scope.cancel()
        assert [each.seqs for each in listed] == [list(range(1, total + 1))] * 6
        assert listed[0].at_once == 0
        assert all(each.at_once > 0 for each in listed[1:])


async def test_a_run_that_ends_ends_the_feed_of_a_follower_that_takes_everything_at_once() -> None:
    async with stage(Script(Continue(), Done())) as w:
        run_id = await start_idle(w)
        taken: list[Event] = []

        def take(events: Sequence[Event]) -> bool:
            taken.extend(events)
            return True

        followed: list[Event] = []

        async def follow() -> None:
            async for events in w.ocean.follow_in_parts(FeedFilter(run_id=run_id), 0, take):
                followed.extend(events)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow)
                await until(lambda: any(each._taker is not None for each in w.ocean._tail._all()))
                await w.ocean.signal(run_id)
                await w.drain()
        assert [*followed, *taken] == await log(w, run_id)
        assert taken[-1].type == "run.done"
