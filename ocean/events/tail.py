"""The tail: one reader of the end of the log for all followers in this process.

The tail reads each new commit once and passes its events to the followers that they concern. A follower joins, reads
the past by pages from the database, and continues with the events that the tail has kept for it in the meantime. It
joins first, so no event is lost between the two. The number of events kept for a follower is bounded: one that reads
too slowly falls behind, does not delay the others, and reads pages again; the database has every event.

The tail runs only while there are followers.
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
"""The number of events that are kept for a follower that does not read them."""
TRIES = 5
FIRST_PAUSE_MS = 100
LAST_EVENTS = frozenset({"run.done", "run.failed", "run.deleted"})
EVERYTHING = FeedFilter()

logger = logging.getLogger("ocean.events")


class Tail:
    """Reads the end of the log and passes new events to the followers."""

    def __init__(self, store: Store, clock: Clock, kept: int = KEPT) -> None:
        self._store = store
        self._clock = clock
        self._most_kept = kept
        self._groups: dict[str | None, dict[FeedFilter, dict[Follower, None]]] = {}
        """The followers by run, or None, and by filter: a filter is evaluated once for all that share it."""
        self._ending: set[Follower] = set()
        self._position: int | None = None
        self._is_ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def followers(self) -> int:
        """The number of followers."""
        return len(self._all())

    @property
    def is_running(self) -> bool:
        """Whether the reader's task is running."""
        return self._task is not None and not self._task.done()

    @contextmanager
    def joined(self, where: FeedFilter, after: int = 0, take_at_once: TakeAtOnce | None = None) -> Iterator[Follower]:
        """Add a follower while the block runs; the first one starts the reader, the last one stops it."""
        if self._is_closed:
            raise _closed()
        follower = Follower(where, after, self._most_kept, self.ready, take_at_once)
        self._groups.setdefault(where.run_id, {}).setdefault(where, {})[follower] = None
        if not self.is_running:
            self._position = None
            self._is_ready = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="ocean-tail")
        try:
            yield follower
        finally:
            self._leave(follower)

    async def ready(self) -> None:
        """Wait until the tail has its start position. A page that is read afterwards leaves no gap before the tail."""
        await self._is_ready.wait()

    async def close(self) -> None:
        """Stop the reader; followers raise `StoreUnusable`."""
        self._is_closed = True
        self._fail(_closed())
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])

    def _leave(self, follower: Follower) -> None:
        groups = self._groups[follower.where.run_id]
        del groups[follower.where][follower]
        self._ending.discard(follower)
        if not groups[follower.where]:
            del groups[follower.where]
        if not groups:
            del self._groups[follower.where.run_id]
        if not self._groups and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        failures = 0
        while True:
            # Taken before the read: a commit during the read then causes another read.
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
                logger.warning("cannot read the end of the log (%s), retrying: %s", type(error).__name__, error)
                await sleep(self._clock, FIRST_PAUSE_MS * 2**failures)

    async def _read(self) -> None:
        """Read all new events, in one query unless there is more than a page."""
        if self._position is None:
            _, self._position = await self._store.event_bounds()
            self._is_ready.set()
        is_level = False
        while not is_level:
            events = await self._store.read_events(EVERYTHING, self._position, PAGE)
            if events and events[0].seq > self._position + 1:
                await self._check_retention(self._position)
            if events:
                self._distribute(events)
                self._position = events[-1].seq
            is_level = len(events) < PAGE
        # All events are read, so the whole commit that ended a run has been passed to its followers.
        for follower in self._ending:
            follower.end()
        self._ending.clear()

    async def _check_retention(self, position: int) -> None:
        """Let all followers read pages again if retention has removed events that were not read yet."""
        floor, _ = await self._store.event_bounds()
        if floor > position:
            for follower in self._all():
                follower.fall_behind(position)

    def _distribute(self, events: list[Event]) -> None:
        for run_id in {None, *(event.run_id for event in events)}:
            for where, followers in self._groups.get(run_id, {}).items():
                matching = [event for event in events if where.has(event)]
                for follower in list(followers) if matching else ():
                    follower.offer(matching)
        for run_id in {event.run_id for event in events if event.type in LAST_EVENTS}:
            for followers in self._groups.get(run_id, {}).values():
                self._ending.update(followers)

    def _fail(self, error: Exception) -> None:
        for follower in self._all():
            follower.fail(error)
        self._is_ready.set()

    def _all(self) -> list[Follower]:
        groups = (group for groups in self._groups.values() for group in groups.values())
        return [follower for group in groups for follower in group]


def _closed() -> StoreUnusable:
    return StoreUnusable("this Ocean is closed")
