"""Streamed events of a call: stored in order, without blocking the handler.

Events that arrive while a write is in progress share the next write, so a fast handler needs few transactions. Not
waiting loses nothing: a call that dies is repeated under a higher number and streams again, and a call that commits
has stored all its events before.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import anyio
import anyio.lowlevel

from ocean.state.effects import NewEvent

MOST_BUFFERED = 256
MOST_BUFFERED_CHARACTERS = 1_000_000
"""How much may be buffered before the handler has to wait for the database."""


class StreamBuffer:
    """`append` is called with all events that have arrived since the last write."""

    def __init__(self, append: Callable[[Sequence[NewEvent]], Awaitable[None]]) -> None:
        self._append = append
        self._events: list[NewEvent] = []
        self._size = 0
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def append(self, event: NewEvent) -> None:
        """Buffer an event. Raises the error of an earlier write."""
        if self._error is not None:
            raise self._error
        self._events.append(event)
        self._size += len(event.payload)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        if len(self._events) >= MOST_BUFFERED or self._size >= MOST_BUFFERED_CHARACTERS:
            await self.flush()
        else:
            # Lets the write begin, even if the handler does not await anything for a long time.
            await anyio.lowlevel.checkpoint()

    async def flush(self) -> None:
        """Wait until all events are stored."""
        while self._writing is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._writing])
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        try:
            while self._events:
                events, self._events, self._size = self._events, [], 0
                await self._append(events)
        except Exception as error:
            self._error = error
        finally:
            self._writing = None


class RunningStep:
    """A step whose function is being called, and whether it has streamed."""

    __slots__ = ("call", "has_streamed", "id", "is_over")

    def __init__(self, call: object, id: str) -> None:
        self.call = call
        self.id = id
        self.has_streamed = False
        self.is_over = False


RUNNING: ContextVar[RunningStep | None] = ContextVar("ocean_running_step", default=None)
"""Tasks and threads that a step's function starts inherit it."""


@contextmanager
def streaming_in(call: object, id: str) -> Iterator[RunningStep]:
    """Let events that are streamed in this block, by the same call, belong to a step."""
    step = RunningStep(call, id)
    token = RUNNING.set(step)
    try:
        yield step
    finally:
        step.is_over = True
        RUNNING.reset(token)


def of_step(call: object, event: NewEvent) -> NewEvent:
    """Return the event with the step in which the call streams it.

    A step's function may advance other runs, whose calls then inherit its context: their events are not the step's.
    """
    step = RUNNING.get()
    if step is None or step.is_over or step.call is not call:
        return event
    step.has_streamed = True
    return event._replace(step=step.id)
