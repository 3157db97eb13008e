"""A follower: one feed's end of the tail, and the events that the tail keeps for it.

A waiting follower may have a function that takes events at once, in the tail's task: with a thousand followers, waking
the task of each costs more than the work that it then does.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from ocean.state.filters import FeedFilter
from ocean.state.records import Event

TakeAtOnce = Callable[[Sequence[Event]], bool]
"""Takes events that a follower waits for, without blocking, and returns True; or returns False to leave them."""

logger = logging.getLogger("ocean.events")


class FollowerState(Enum):
    """How a follower gets its events."""

    BEHIND = auto()
    """It has to read pages; nothing is kept for it."""
    CATCHING_UP = auto()
    """It reads pages; new events are kept for it."""
    LEVEL = auto()
    """It gets new events from the tail."""


class Follower:
    """One feed's end of the tail. `after`: all events of this feed up to here have been delivered."""

    # Slots, because there may be thousands, and each event visits all that it concerns.
    __slots__ = (
        "_kept",
        "_most",
        "_state",
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
        self._state = FollowerState.BEHIND
        self._most = most
        self._kept: deque[Event] = deque()
        self._tail_is_ready = tail_is_ready
        self._take_at_once = take_at_once
        self._taker: TakeAtOnce | None = None
        self._woken = asyncio.Event()

    @property
    def is_behind(self) -> bool:
        """Whether it has to read pages."""
        return self._state is FollowerState.BEHIND

    async def catch_up(self) -> None:
        """Keep everything that the tail reads from now on. Call it before reading the database."""
        await self._tail_is_ready()
        self._raise()
        self._kept.clear()
        self._woken.clear()
        self.is_over = False
        self._state = FollowerState.CATCHING_UP

    def level(self, after: int) -> None:
        """Note that the database was read up to `after`. If that took too long, the follower stays behind."""
        self.after = after
        if self._state is FollowerState.CATCHING_UP:
            self._state = FollowerState.LEVEL

    async def next(self) -> list[Event]:
        """Wait for events and return all that there are; none means that the feed has ended or has fallen behind."""
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
            # Only here are all earlier events known to be delivered, so that the function may take the next ones.
            self._taker = self._take_at_once
            try:
                await self._woken.wait()
            finally:
                self._taker = None

    async def wait(self) -> None:
        """Wait until anything has happened since `catch_up` that concerns this follower."""
        await self._woken.wait()

    def wake(self) -> None:
        """Wake the task that waits for this follower."""
        self._taker = None
        self._woken.set()

    def offer(self, events: Sequence[Event]) -> None:
        """Take the events of this feed that the tail has just read."""
        if self._taker is not None and events[0].seq > self.after and _is_taken(self._taker, events):
            self.after = events[-1].seq
            return
        if self.is_behind:
            return
        before = events[0].seq - 1
        self._skip_to(before)
        if len(self._kept) + len(events) > self._most:
            self.fall_behind(before)
            return
        self._kept.extend(events)
        self.wake()

    def fall_behind(self, position: int) -> None:
        """Drop what was kept: the follower has to read pages."""
        self._skip_to(position)
        self._kept.clear()
        self._state = FollowerState.BEHIND
        self.wake()

    def end(self) -> None:
        """Mark the feed as over: its run has ended and all events were offered."""
        self.is_over = not self.is_behind
        self.wake()

    def fail(self, error: Exception) -> None:
        """Make the waiting task raise this error."""
        self.error = error
        self.wake()

    def _skip_to(self, position: int) -> None:
        """Advance `after`: nothing was kept up to there, so this feed has no events there to lose to retention."""
        if self._state is FollowerState.LEVEL and not self._kept:
            self.after = max(self.after, position)

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error


def _is_taken(taker: TakeAtOnce, events: Sequence[Event]) -> bool:
    """Return whether the function took the events. Its error must not reach the other followers, so it is logged."""
    try:
        return taker(events)
    except Exception:
        logger.exception("a follower's events could not be taken at once")
        return False
