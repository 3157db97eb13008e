"""A follower: one feed's end of the tail, and what the tail keeps for it.

One that waits may have something that takes events at once, where they were read: with a thousand followers, to wake
each of them costs more than what it then does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from ocean.state.filters import FeedFilter
from ocean.state.records import Event

TakeAtOnce = Callable[[Sequence[Event]], bool]
"""Takes events that a follower waits for, without waiting itself, and answers True; or leaves them to the follower."""

logger = logging.getLogger("ocean.events")


class Place(Enum):
    """Where a follower is, as the tail sees it."""

    BEHIND = auto()
    """Reads by pages, or should; nothing is kept for it."""
    CATCHING_UP = auto()
    """Reads by pages; what comes is kept."""
    LEVEL = auto()
    """Lives on what the tail hands to it."""


class Follower:
    """One feed's end of the tail. `after`: all up to here was handed on, or is none of this feed's."""

    # There may be many, and all of them are asked for each event.
    __slots__ = (
        "_kept",
        "_most",
        "_place",
        "_tail_is_ready",
        "_take_at_once",
        "_taker",
        "_woken",
        "after",
        "error",
        "is_over",
        "where",
    )

    def __init__(
        self,
        where: FeedFilter,
        after: int,
        most: int,
        tail_is_ready: Callable[[], Awaitable[None]],
        take_at_once: TakeAtOnce | None,
    ) -> None:
        self.where = where
        self.after = after
        self.is_over = False
        self.error: Exception | None = None
        self._place = Place.BEHIND
        self._most = most
        self._kept: deque[Event] = deque()
        self._tail_is_ready = tail_is_ready
        self._take_at_once = take_at_once
        self._taker: TakeAtOnce | None = None
        self._woken = asyncio.Event()

    @property
    def is_behind(self) -> bool:
        return self._place is Place.BEHIND

    async def catch_up(self) -> None:
        """Have all kept that the tail reads from now on. Call it before looking at the database."""
        await self._tail_is_ready()
        self._raise()
        self._kept.clear()
        self._woken.clear()
        self.is_over = False
        self._place = Place.CATCHING_UP

    def level(self, after: int) -> None:
        """The database was read up to `after`. It may have taken too long, then there is more to read there."""
        self.after = after
        if self._place is Place.CATCHING_UP:
            self._place = Place.LEVEL

    async def next(self) -> list[Event]:
        """The feed's next events, all that there are by now. None at all: it is over, or this follower is behind."""
        while True:
            events = [event for event in self._kept if event.seq > self.after]
            self._kept.clear()
            if events:
                self.after = events[-1].seq
                return events
            self._raise()
            if self.is_over or self.is_behind:
                return []
            self._woken.clear()
            # Only who waits here has passed on all that came before.
            self._taker = self._take_at_once
            try:
                await self._woken.wait()
            finally:
                self._taker = None

    async def wait(self) -> None:
        """Until something has happened since `catch_up` that concerns this follower, whatever it is."""
        await self._woken.wait()

    def wake(self) -> None:
        self._taker = None
        self._woken.set()

    def offer(self, events: Sequence[Event]) -> None:
        """From the tail: what it has just read of this feed."""
        if self._taker is not None and events[0].seq > self.after and _is_taken(self._taker, events):
            self.after = events[-1].seq
            return
        if self.is_behind:
            return
        before = events[0].seq - 1
        self._pass(before)
        if len(self._kept) + len(events) > self._most:
            self.fall_behind(before)
            return
        self._kept.extend(events)
        self.wake()

    def fall_behind(self, position: int) -> None:
        self._pass(position)
        self._kept.clear()
        self._place = Place.BEHIND
        self.wake()

    def end(self) -> None:
        self.is_over = not self.is_behind
        self.wake()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.wake()

    def _pass(self, position: int) -> None:
        """Nothing was kept up to there, so nothing up to there was this feed's: retention may have it."""
        if self._place is Place.LEVEL and not self._kept:
            self.after = max(self.after, position)

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error


def _is_taken(taker: TakeAtOnce, events: Sequence[Event]) -> bool:
    """An error of one follower's is none of the others': it is left to meet it again by itself."""
    try:
        return taker(events)
    except Exception:
        logger.exception("events could not be taken at once")
        return False
