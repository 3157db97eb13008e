"""A SQLite database without threads: units of work run on the event loop, when the loop draws the writer's task.

Several of them may share one connection, each as the database of another process: a unit runs without interruption, so
that its statements are never mixed with those of another. `Weather` decides which faults happen.
"""

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import TypeVar

import anyio

from ocean.kernel.metrics import BATCHES, Histogram
from ocean.state.errors import StoreUnusable
from ocean.stores.shared.waiter import Waiter
from ocean.stores.sqlite.engine.cache import Cache
from ocean.stores.sqlite.engine.group_commit import (
    ClaimQueue,
    QueuedClaim,
    QueuedUnit,
    TransactionBody,
    report_claims,
    run_units,
)
from ocean.stores.sqlite.migrate import migrate

T = TypeVar("T")

GROUP_LIMIT = 128


class Weather:
    """The faults around units of work. This class has none; a simulation's own delays units, or lets them fail."""

    async def before_write(self, units: list[QueuedUnit]) -> None:
        """Called before units run. If it raises, all of them fail with that error and none runs."""

    async def after_write(self, units: list[QueuedUnit]) -> None:
        """Called after units have committed. If it raises, their callers get that error, although they committed."""

    def before_blocking(self) -> None:
        """Like `before_write`, for a unit that a thread waits for."""

    def after_commit(self) -> None:
        """Called right after a commit, before any other task runs."""

    async def before_read(self) -> None:
        """Called before a read."""


def private_connection() -> sqlite3.Connection:
    """Return a connection to a new database in memory, configured like one in a file."""
    db = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512, check_same_thread=False)
    db.row_factory = sqlite3.Row
    db.deserialize(_fresh())
    db.execute("PRAGMA foreign_keys=ON")
    db.execute("PRAGMA trusted_schema=OFF")
    return db


@cache
def _fresh() -> bytes:
    """Return a database without rows. Copying it is faster than migrating a new one."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        migrate(db)
        return db.serialize()


class InlineDatabase:
    """A SQLite database without threads. The event loop of the test decides when each transaction runs."""

    def __init__(self, db: sqlite3.Connection, weather: Weather | None = None) -> None:
        self._db = db
        self._weather = weather or Weather()
        self._queue: deque[QueuedUnit] = deque()
        self._claims = ClaimQueue()
        self._cache = Cache()
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._commits = 0
        self._version = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_open = False
        self.batch_sizes = Histogram(BATCHES)

    async def open(self) -> None:
        """Start the writer."""
        self._is_open = True
        self._version = self._db.total_changes
        self._writer = asyncio.create_task(self._write_loop())

    async def close(self) -> None:
        """Stop the writer. The connection stays open: it belongs to the caller."""
        self._is_open = False
        if self._writer is not None:
            self._writer.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._writer])
        for queued in self._queue:
            queued.error = StoreUnusable("this Ocean is closed")
        self._tell(list(self._queue))
        self._note_commit()

    async def write(self, unit: TransactionBody[T]) -> T:
        """Run a unit that writes. It runs even if the caller is cancelled meanwhile, as on a thread."""
        self._check_open()
        waiter = Waiter()
        queued = QueuedUnit(unit, waiter)
        self._queue.append(queued)
        self._has_work.set()
        await waiter.wait()
        result: T = queued.outcome()
        return result

    def write_blocking(self, unit: TransactionBody[T]) -> T:
        """Run a unit that writes, at once."""
        self._check_open()
        self._weather.before_blocking()
        queued = QueuedUnit(unit, threading.Event())
        before = self._db.total_changes
        run_units(self._db, [queued], ClaimQueue(), self._cache)
        self._weather.after_commit()
        if self._db.total_changes != before:
            self._note_commit()
        result: T = queued.outcome()
        return result

    def add_claim(self, claim: QueuedClaim) -> None:
        """Queue a claim, to be made with the next write that makes something due."""
        self._claims.add(claim)

    def remove_claim(self, claim: QueuedClaim) -> bool:
        """Withdraw a claim; return whether it was still queued."""
        return self._claims.remove(claim)

    @property
    def is_about_to_write(self) -> bool:
        """Whether units of work are waiting."""
        return bool(self._queue)

    async def read(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        """Run a unit that reads."""
        self._check_open()
        await self._weather.before_read()
        self._db.execute("BEGIN")
        try:
            return unit(self._db)
        finally:
            self._db.rollback()

    async def _write_loop(self) -> None:
        while True:
            await self._has_work.wait()
            units = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_LIMIT))]
            if not self._queue:
                self._has_work.clear()
            before = self._db.total_changes
            try:
                await self._weather.before_write(units)
                before = self._db.total_changes
                run_units(self._db, units, self._claims, self._cache)
                self._weather.after_commit()
                has_changed = self._db.total_changes != before
                self.batch_sizes.add(len(units))
                await self._weather.after_write(units)
            except Exception as error:
                has_changed = self._db.total_changes != before
                for queued in units:
                    queued.error = error
            report_claims(units)
            if has_changed:
                self._note_commit()
            self._tell(units)

    def _tell(self, units: list[QueuedUnit]) -> None:
        for queued in units:
            if isinstance(queued.waiter, Waiter):
                queued.waiter.set()

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnusable("this Ocean is closed")

    def commits_seen(self) -> int:
        """Return how many commits this database has noticed."""
        return self._commits

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        """Wait for a commit. Its own commits are noticed at once, those of other databases every `look_ms`."""
        loop = asyncio.get_running_loop()
        while self._commits <= seen:
            self._check_open()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.add(waiter)
            look = loop.call_later(look_ms / 1000, self._look)
            try:
                await waiter
            finally:
                look.cancel()
                self._waiters.discard(waiter)
        return self._commits

    def _look(self) -> None:
        if self._db.total_changes != self._version:
            self._note_commit()
        else:
            for waiter in self._waiters:
                _finish(waiter)

    def _note_commit(self) -> None:
        self._commits += 1
        self._version = self._db.total_changes
        for waiter in self._waiters:
            _finish(waiter)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
