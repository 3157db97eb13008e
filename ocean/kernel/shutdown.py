"""The orderly stop of one instance: claim nothing more, wait for the handlers, then stop them and give their runs back.

Every poke that claims or calls is registered here while it does so, no matter what made it: a ticker, a request, a
watcher, `advance`, a command. A run that a stop gives back spends no attempt, however often that happens.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio

from ocean.kernel.poke_sources import PokeSource
from ocean.state.clock import Clock

UNWIND_MS = 1_000
"""How long a handler that was cancelled may take to end. Then its run is given back while it is still executing."""


@dataclass(frozen=True, slots=True)
class TickAtWork:
    """A tick whose handler is running."""

    clog_id: str
    run_id: str
    tick: int


class Poke(Protocol):
    """What a stop needs of a poke."""

    def ticks(self) -> list[TickAtWork]: ...

    async def abandon(self) -> None: ...


class Shutdown:
    """Whether this instance stops, and the pokes that a stop waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pokes: set[Poke] = set()
        self._callbacks: dict[object, Callable[[], object]] = {}
        self._moved = anyio.Event()
        self._hurry = anyio.Event()
        self.is_begun = False
        self.left = 0
        """How many handlers did not end when they were cancelled, and are still executing."""

    def add(self, poke: Poke) -> None:
        """Register a poke that is claiming, or whose handlers are running."""
        self._pokes.add(poke)

    def remove(self, poke: Poke) -> None:
        """Note that a poke neither claims nor has running handlers."""
        self._pokes.discard(poke)
        if self.is_begun:
            self._moved.set()

    def leave(self, task: "asyncio.Task[None]") -> None:
        """Note a handler that is still executing after its run has been given back."""
        self.left += 1
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: "asyncio.Task[None]") -> None:
        self.left -= 1

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` if the stop begins while the block is running."""
        mark = object()
        self._callbacks[mark] = callback
        try:
            yield
        finally:
            del self._callbacks[mark]

    def ticks(self) -> list[TickAtWork]:
        """Return the ticks whose handlers are running."""
        return [tick for poke in self._pokes for tick in poke.ticks()]

    def has_ended_claims_of(self, source: PokeSource) -> bool:
        """Return whether a poke of this source claims nothing any more.

        The poke behind a request that was accepted before the stop still does its work, until the grace is over: on a
        host that stops idle servers no other poke may come for a long time.
        """
        return self.is_begun and (source != "request" or self._hurry.is_set())

    def begin(self) -> None:
        """Claim nothing from now on, except for requests that were accepted."""
        if not self.is_begun:
            self.is_begun = True
            for callback in tuple(self._callbacks.values()):
                callback()

    def hurry(self) -> None:
        """End the grace of a stop that is waiting, or of the next one."""
        self._hurry.set()
        self._moved.set()

    async def hurried(self) -> None:
        """Wait for `hurry`."""
        await self._hurry.wait()

    async def stop(self, grace_ms: int) -> None:
        """Stop: handlers have `grace_ms` to finish, then they are cancelled and their runs are given back."""
        self.begin()
        cancel = self._clock.call_later(grace_ms, self.hurry)
        try:
            while self._pokes and not self._hurry.is_set() and grace_ms:
                self._moved = anyio.Event()
                await self._moved.wait()
        finally:
            cancel()
            with anyio.CancelScope(shield=True):
                await self._abandon()

    async def _abandon(self) -> None:
        while pokes := list(self._pokes):
            await asyncio.gather(*(poke.abandon() for poke in pokes))
            # A poke whose claim is in flight is still registered. It stops what it gets at once.
            if self._pokes:
                self._moved = anyio.Event()
                await self._moved.wait()
