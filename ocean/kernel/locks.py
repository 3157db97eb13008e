"""Keeping locks: a timer that no handler can block renews them; a lock that is lost or expired is given up."""

import asyncio
import logging
import threading
from collections.abc import Callable

from ocean.kernel.store import Store
from ocean.state.clock import Cancel, Clock
from ocean.state.records import Lock

log = logging.getLogger("ocean.locks")

LONGEST_INTERVAL_MS = 2_500
"""A renewal also finds out that another process ends the run. That must not take up the grace time."""


class HeldLock:
    """A lock that this instance holds until `good_until`, which only a confirmed renewal extends."""

    def __init__(
        self, lock: Lock, good_until: int, when_lost: Callable[[], None], when_ending: Callable[[], None]
    ) -> None:
        self.lock = lock
        self.good_until = good_until
        self.is_lost = False
        self._loop = asyncio.get_running_loop()
        self._when_lost = when_lost
        self._when_ending: Callable[[], None] | None = when_ending

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self._loop.call_soon_threadsafe(self._when_lost)

    def end(self) -> None:
        """The run is ending: its call is to stop once a step in flight has finished."""
        callback, self._when_ending = self._when_ending, None
        if callback is not None:
            self._loop.call_soon_threadsafe(callback)


class LockKeeper:
    def __init__(self, store: Store, clock: Clock, shortest_lock_ms: int) -> None:
        self._store = store
        self._clock = clock
        # A whole number of intervals, so that a lock that could not be renewed is given up when its time is over.
        self._interval_ms = max(1, shortest_lock_ms // max(3, -(-shortest_lock_ms // LONGEST_INTERVAL_MS)))
        self._held: dict[Lock, HeldLock] = {}
        self._guard = threading.Lock()
        self._stop: Cancel | None = None
        self._released: asyncio.Event | None = None

    def hold(
        self, lock: Lock, sent_at: int, when_lost: Callable[[], None], when_ending: Callable[[], None]
    ) -> HeldLock:
        """Start renewing a lock whose claim was sent at `sent_at`."""
        held = HeldLock(lock, sent_at + lock.lock_ms, when_lost, when_ending)
        with self._guard:
            self._held[lock] = held
            if self._stop is None:
                self._stop = self._clock.every(self._interval_ms, self.renew)
        return held

    def release(self, held: HeldLock) -> None:
        with self._guard:
            self._held.pop(held.lock, None)
        if self._released is not None:
            self._released.set()

    @property
    def count(self) -> int:
        return len(self._held)

    def run_is_ending(self, run_id: str) -> None:
        """Tell the call of this run, if it is made here, at once."""
        with self._guard:
            held = [each for lock, each in self._held.items() if lock.run_id == run_id]
        for each in held:
            each.end()

    async def fewer_than(self, most: int) -> None:
        """Wait until fewer than `most` locks are held."""
        while self.count >= most:
            self._released = self._released or asyncio.Event()
            await self._released.wait()
            self._released = None

    def close(self) -> None:
        with self._guard:
            if self._stop is not None:
                self._stop()

    def renew(self) -> None:
        """Renew all locks, off the event loop; then drop those that were lost or could not be renewed in time."""
        with self._guard:
            all_held = list(self._held.values())
        if not all_held:
            return
        sent_at = self._clock.now()
        try:
            renewal = self._store.renew_locks([held.lock for held in all_held])
        except Exception:
            log.warning("could not renew %d locks; will try again", len(all_held), exc_info=True)
            renewal = None
        for held in all_held:
            if renewal is not None and held.lock not in renewal.lost:
                held.good_until = max(held.good_until, sent_at + held.lock.lock_ms)
                if held.lock in renewal.ending:
                    held.end()
            elif renewal is not None or self._clock.now() >= held.good_until:
                self._drop(held)

    def _drop(self, held: HeldLock) -> None:
        """Report a lock as lost, unless it was released meanwhile because its tick has committed."""
        with self._guard:
            if held.lock not in self._held:
                return
        held.lose()
