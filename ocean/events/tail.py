"""The tail: one reader of the log's end for everybody here who follows it.

Each noticed commit is read once, and what is new is handed to the followers it concerns. A follower joins, reads the
past by pages from the database, and goes on with what the tail has kept for it meanwhile: joining comes first, so
nothing falls between. What the tail keeps for one follower is bounded. One that takes too slowly is left behind, holds
nobody up, and reads by pages again; the database has everything.

The tail runs only while somebody follows.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from ocean.events.follower import Follower, TakeAtOnce
from ocean.kernel.store import Store
from ocean.state.clock import Clock, sleep
from ocean.state.errors import StoreUnusable
from ocean.state.filters import FeedFilter
from ocean.state.records import Event

PAGE = 500
KEPT = 1_000
"""Events kept for a follower that does not take them."""
TRIES = 5
FIRST_PAUSE_MS = 100
LAST_EVENTS = frozenset({"run.done", "run.failed", "run.deleted"})
EVERYTHING = FeedFilter()

logger = logging.getLogger("ocean.events")


class Tail:
    def __init__(self, store: Store, clock: Clock, kept: int = KEPT) -> None:
        self._store = store
        self._clock = clock
        self._most_kept = kept
        self._circles: dict[str | None, dict[FeedFilter, dict[Follower, None]]] = {}
        """By the run that they follow, if it is one, and by what else they ask for: that is looked at once for all."""
        self._ending: set[Follower] = set()
        self._position: int | None = None
        self._is_ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def followers(self) -> int:
        return len(self._all())

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @contextmanager
    def joined(self, where: FeedFilter, after: int = 0, take_at_once: TakeAtOnce | None = None) -> Iterator[Follower]:
        if self._is_closed:
            raise _closed()
        follower = Follower(where, after, self._most_kept, self.ready, take_at_once)
        self._circles.setdefault(where.run_id, {}).setdefault(where, {})[follower] = None
        if not self.is_running:
            self._position = None
            self._is_ready = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="ocean-tail")
        try:
            yield follower
        finally:
            self._leave(follower)

    async def ready(self) -> None:
        """Until the tail knows where it begins: a page that is read after this leaves no gap before the tail."""
        await self._is_ready.wait()

    async def close(self) -> None:
        self._is_closed = True
        self._fail(_closed())
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])

    def _leave(self, follower: Follower) -> None:
        circles = self._circles[follower.where.run_id]
        del circles[follower.where][follower]
        self._ending.discard(follower)
        if not circles[follower.where]:
            del circles[follower.where]
        if not circles:
            del self._circles[follower.where.run_id]
        if not self._circles and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        failures = 0
        while True:
            # Before the look: a commit that comes during it is looked at again.
            seen = self._store.commits_seen()
            try:
                await self._read()
                failures = 0
                await self._store.next_commit(seen)
            except Exception as error:
                failures += 1
                if isinstance(error, StoreUnusable) or failures == TRIES:
                    self._fail(error)
                    return
                logger.warning("cannot read the end of the log (%s), trying again: %s", type(error).__name__, error)
                await sleep(self._clock, FIRST_PAUSE_MS * 2**failures)

    async def _read(self) -> None:
        """All that is new, in one query unless it is a lot."""
        if self._position is None:
            _, self._position = await self._store.event_bounds()
            self._is_ready.set()
        is_level = False
        while not is_level:
            events = await self._store.read_events(EVERYTHING, self._position, PAGE)
            if events and events[0].seq > self._position + 1:
                await self._look_for_a_cut(self._position)
            if events:
                self._hand_out(events)
                self._position = events[-1].seq
            is_level = len(events) < PAGE
        # Level with the database, so all of the commit that ended a run has been handed out.
        for follower in self._ending:
            follower.end()
        self._ending.clear()

    async def _look_for_a_cut(self, position: int) -> None:
        """Retention may have been faster than this reader: then each follower finds out what it has lost."""
        floor, _ = await self._store.event_bounds()
        if floor > position:
            for follower in self._all():
                follower.fall_behind(position)

    def _hand_out(self, events: list[Event]) -> None:
        for run_id in {None, *(event.run_id for event in events)}:
            for where, followers in self._circles.get(run_id, {}).items():
                told = [event for event in events if where.has(event)]
                for follower in list(followers) if told else ():
                    follower.offer(told)
        for run_id in {event.run_id for event in events if event.type in LAST_EVENTS}:
            for followers in self._circles.get(run_id, {}).values():
                self._ending.update(followers)

    def _fail(self, error: Exception) -> None:
        for follower in self._all():
            follower.fail(error)
        self._is_ready.set()

    def _all(self) -> list[Follower]:
        circles = (circle for circles in self._circles.values() for circle in circles.values())
        return [follower for circle in circles for follower in circle]


def _closed() -> StoreUnusable:
    return StoreUnusable("this Ocean is closed")
