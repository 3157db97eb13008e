"""Reads on a snapshot. Reads that are requested in one round of the event loop share the snapshot and the trip to the
reader's thread."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import aiosqlite

from ocean.state.errors import StoreBusy, StoreFailed, StoreUnusable
from ocean.stores.sqlite.engine.group_commit import is_busy, is_failing

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class SnapshotRead:
    """A read in the queue, and the future of its caller."""

    unit: Callable[[sqlite3.Connection], Any]
    waiter: asyncio.Future[None]
    result: Any = None
    error: BaseException | None = None

    def run(self, db: sqlite3.Connection) -> None:
        try:
            self.result = self.unit(db)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class Reader:
    """Runs reads on the thread of an aiosqlite connection."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._gathered: list[SnapshotRead] = []
        self._unfinished: set[SnapshotRead] = set()

    async def read(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        read = SnapshotRead(unit, loop.create_future())
        if not self._gathered:
            loop.call_soon(self._submit)
        self._gathered.append(read)
        self._unfinished.add(read)
        await read.waiter
        if read.error is not None:
            raise _store_error(read.error)
        result: T = read.result
        return result

    def _submit(self) -> None:
        reads, self._gathered = self._gathered, []
        loop = asyncio.get_running_loop()
        self._connection._tx.put_nowait((None, lambda: self._run(reads, loop)))

    def _run(self, reads: list[SnapshotRead], loop: asyncio.AbstractEventLoop) -> None:
        """Run reads on one snapshot. Called on the connection's thread."""
        try:
            db = self._connection._conn
            db.execute("BEGIN")
        except (sqlite3.Error, ValueError) as error:
            for read in reads:
                read.error = error
        else:
            for read in reads:
                read.run(db)
            db.rollback()
        # A closed loop has no task left that waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._finish, reads)

    def _finish(self, reads: list[SnapshotRead]) -> None:
        self._unfinished.difference_update(reads)
        for read in reads:
            read.finish()

    def close(self) -> None:
        """Fail the reads that are left. The connection must be closed already, so that it runs none of them."""
        for read in self._unfinished:
            read.error = StoreUnusable("this Ocean is closed")
            read.finish()


def _store_error(error: BaseException) -> BaseException:
    # The messages of aiosqlite and of the driver, which is closed a moment earlier.
    if str(error) in ("no active connection", "Cannot operate on a closed database."):
        return StoreUnusable("this Ocean is closed")
    if is_busy(error):
        translated: Exception = StoreBusy("another process has locked the database exclusively; retry")
    elif is_failing(error):
        translated = StoreFailed(f"the database cannot be read: {error}; check its disk")
    else:
        return error
    translated.__cause__ = error
    return translated
