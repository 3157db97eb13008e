"""Reads of rows that share a statement: those of one round of the loop, and those that gather while others are in
flight. Each sees everything that was committed before it was requested; all reads of a statement see the same state."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ocean.state.effects import RowKey, StoredRow
from ocean.state.errors import StoreFailed

Ask: TypeAlias = Callable[[Sequence[RowKey]], Awaitable[Sequence[StoredRow]]]

MOST_ROWS = 64
"""A statement with so many rows takes no further read."""
MOST_AT_ONCE = 2
"""How many statements are in flight at once, so that a slow one does not delay all reads."""


class RowBatches:
    """`ask` executes one statement and returns a row for each key."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._queue: deque[_Read] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._is_gathering = False

    async def read(self, keys: Sequence[RowKey]) -> Sequence[StoredRow]:
        loop = asyncio.get_running_loop()
        read = _Read(keys, loop.create_future())
        self._queue.append(read)
        if not self._is_gathering:
            self._is_gathering = True
            loop.call_soon(self._send)
        return await read.rows

    def _send(self) -> None:
        self._is_gathering = False
        while self._queue and len(self._senders) < MOST_AT_ONCE:
            sender = asyncio.create_task(self._read_group(self._next_group()))
            self._senders.add(sender)
            sender.add_done_callback(self._sent)

    def _sent(self, sender: asyncio.Task[None]) -> None:
        self._senders.discard(sender)
        self._send()

    def _next_group(self) -> list["_Read"]:
        group = [self._queue.popleft()]
        count = len(group[0].keys)
        while self._queue and count + len(self._queue[0].keys) <= MOST_ROWS:
            group.append(self._queue.popleft())
            count += len(group[-1].keys)
        return group

    async def _read_group(self, group: list["_Read"]) -> None:
        try:
            rows = iter(await self._ask([key for read in group for key in read.keys]))
        except BaseException as error:
            if isinstance(error, StoreFailed) and len(group) > 1:
                # Read each alone, so that only the one at fault fails.
                for read in group:
                    await self._read_group([read])
                return
            for read in group:
                if not read.rows.done():
                    read.rows.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for read in group:
            found = [next(rows) for _ in read.keys]
            if not read.rows.done():
                read.rows.set_result(found)


class _Read:
    __slots__ = ("keys", "rows")

    def __init__(self, keys: Sequence[RowKey], rows: "asyncio.Future[Sequence[StoredRow]]") -> None:
        self.keys = keys
        self.rows = rows
