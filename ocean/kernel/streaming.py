"""What a call streams: stored in the order it was said, without holding up the handler that goes on speaking.

Whatever is said while a write is under way shares the next one, so a fast speaker costs few transactions. Nothing is
lost by not waiting: a call that dies is told anew under a higher number, and one that commits has stored all before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel

from ocean.state.effects import NewEvent

MOST_AHEAD = 256
MOST_AHEAD_CHARACTERS = 1_000_000
"""How far a handler may be ahead of the database. Then it waits for it."""


class Outflow:
    def __init__(self, append: Callable[[Sequence[NewEvent]], Awaitable[None]]) -> None:
        self._append = append
        self._said: list[NewEvent] = []
        self._size = 0
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def say(self, event: NewEvent) -> None:
        """Hand an event on. What went wrong with an earlier one is raised here."""
        if self._error is not None:
            raise self._error
        self._said.append(event)
        self._size += len(event.payload)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        if len(self._said) >= MOST_AHEAD or self._size >= MOST_AHEAD_CHARACTERS:
            await self.settle()
        else:
            # Lets the write begin, also if the handler then waits for nothing for long.
            await anyio.lowlevel.checkpoint()

    async def settle(self) -> None:
        """Wait until all that was said is stored."""
        while self._writing is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._writing])
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        try:
            while self._said:
                events, self._said, self._size = self._said, [], 0
                await self._append(events)
        except Exception as error:
            self._error = error
        finally:
            self._writing = None
