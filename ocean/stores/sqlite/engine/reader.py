"""Looks at a snapshot: those that are asked for in one round of the event loop share it, and the trip to its thread."""

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
class Look:
    unit: Callable[[sqlite3.Connection], Any]
    waiter: asyncio.Future[None]
    result: Any = None
    error: BaseException | None = None

    def take(self, db: sqlite3.Connection) -> None:
        try:
            self.result = self.unit(db)
        except BaseException as error:
            self.error = error

    def tell(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class Looks:
    """On a connection of aiosqlite's, whose thread runs them."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._asked: list[Look] = []
        self._untold: set[Look] = set()

    async def look(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        look = Look(unit, loop.create_future())
        if not self._asked:
            loop.call_soon(self._submit)
        self._asked.append(look)
        self._untold.add(look)
        await look.waiter
        if look.error is not None:
            raise _in_words(look.error)
        result: T = look.result
        return result

    def _submit(self) -> None:
        asked, self._asked = self._asked, []
        loop = asyncio.get_running_loop()
        self._connection._tx.put_nowait((None, lambda: self._take(asked, loop)))

    def _take(self, asked: list[Look], loop: asyncio.AbstractEventLoop) -> None:
        """On the connection's thread."""
        try:
            db = self._connection._conn
            db.execute("BEGIN")
        except (sqlite3.Error, ValueError) as error:
            for look in asked:
                look.error = error
        else:
            for look in asked:
                look.take(db)
            db.rollback()
        # A loop that is closed has nobody left to tell.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._tell, asked)

    def _tell(self, asked: list[Look]) -> None:
        self._untold.difference_update(asked)
        for look in asked:
            look.tell()

    def close(self) -> None:
        """Behind the connection's own: nobody answers any more."""
        for look in self._untold:
            look.error = StoreUnusable("this Ocean is closed")
            look.tell()


def _in_words(error: BaseException) -> BaseException:
    # In the words of aiosqlite, or of the driver, which is closed a moment earlier.
    if str(error) in ("no active connection", "Cannot operate on a closed database."):
        return StoreUnusable("this Ocean is closed")
    if is_busy(error):
        told: Exception = StoreBusy("another process holds the database for itself; try again")
    elif is_failing(error):
        told = StoreFailed(f"the database cannot be read: {error}; look at its disk")
    else:
        return error
    told.__cause__ = error
    return told
