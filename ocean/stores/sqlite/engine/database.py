"""A SQLite database with two threads: a writer that runs whole transactions, and a reader.

A unit is a function of a transaction. It runs in one call on the writer's thread and never spans an `await`, so a
cancelled caller cannot leave a transaction half open. Units that are queued together, or while another transaction
commits, share the next one: a refused unit leaves no trace, and the others stand.

Only this module and `reader` use aiosqlite's private names (`_tx`, `_thread`, `_conn`); tests pin them.
"""

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import aiosqlite
import anyio
import anyio.to_thread

from ocean.kernel.metrics import BATCHES, Histogram
from ocean.state.errors import StoreBusy, StoreUnusable
from ocean.stores.shared.waiter import Waiter
from ocean.stores.sqlite.engine.cache import Cache
from ocean.stores.sqlite.engine.connection import OLDEST_SQLITE, open_connection
from ocean.stores.sqlite.engine.group_commit import (
    ClaimQueue,
    QueuedClaim,
    QueuedUnit,
    TransactionBody,
    is_busy,
    report_claims,
    run_units,
)
from ocean.stores.sqlite.engine.reader import Reader
from ocean.stores.sqlite.migrate import migrate

T = TypeVar("T")

GROUP_LIMIT = 256
QUIET_ROUNDS = 2


class Database:
    """Runs units as `Transactions`, on a writer's and a reader's thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_memory = path == ":memory:"
        self._queue: deque[QueuedUnit] = deque()
        self._claims = ClaimQueue()
        self._cache = Cache()
        self.batch_sizes = Histogram(BATCHES)
        self._is_gathering = False
        self._is_in_flight = False
        self._commits = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._poll_ms = 0
        self._watcher: asyncio.Task[None] | None = None
        self._writer = self._connection()
        self._reader = self._writer if self._is_memory else self._connection()
        self._reads = Reader(self._reader)
        self._is_open = False
        self._data_version = 0

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnusable(f"SQLite {sqlite3.sqlite_version} is too old; Ocean needs 3.38 or newer")
        try:
            await self._writer
            await self.on_writer(migrate)
            if not self._is_memory:
                await self._reader
            self._data_version = await self._read_data_version()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.close()
                await self._join_threads()
            if is_busy(error):
                raise StoreBusy(f"another process has locked database {self._path!r} exclusively; retry") from error
            if isinstance(error, sqlite3.Error):
                raise StoreUnusable(f"cannot open SQLite database {self._path!r}: {error}") from error
            raise
        self._loop = asyncio.get_running_loop()
        self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._submit()
        self._is_open = False
        if self._watcher is not None:
            self._watcher.cancel()
        for waiter in self._waiters:
            _finish(waiter)
        for connection in {self._writer, self._reader}:
            await connection.close()
        self._drain()
        self._reads.close()

    async def _join_threads(self) -> None:
        """Wait for the threads of connections that failed to open: each still reports its failure from there."""
        for connection in {self._writer, self._reader}:
            if connection._thread.is_alive():
                await anyio.to_thread.run_sync(connection._thread.join)

    connect: Callable[..., sqlite3.Connection] = staticmethod(sqlite3.connect)
    """Tests set another function before `open` to make the disk fail or lose power."""

    def _connection(self) -> aiosqlite.Connection:
        connection = aiosqlite.Connection(lambda: open_connection(self.connect, self._path), iter_chunk_size=64)
        # A process that has not closed the store must still be able to exit.
        connection._thread.daemon = True
        return connection

    async def on_writer(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the writer's thread, outside the store's transactions."""
        result: T = await self._writer._execute(lambda: fn(self._writer._conn))  # type: ignore[no-untyped-call]
        return result

    async def write(self, unit: TransactionBody[T]) -> T:
        """Run a unit in a write transaction that other units may share; returns its result once it is committed.

        A caller in a cancelled scope still waits for the result.
        """
        self._check_open()
        waiter = Waiter()
        queued = QueuedUnit(unit, waiter)
        self._queue.append(queued)
        if not self._is_gathering and not self._is_in_flight:
            self._start_gathering()
        await waiter.wait()
        result: T = queued.outcome()
        return result

    def _start_gathering(self) -> None:
        self._is_gathering = True
        self._loop.call_soon(self._gather, len(self._queue), 0)

    def _gather(self, known: int, quiet: int) -> None:
        """Submit the queue once `QUIET_ROUNDS` rounds of the loop have added nothing to it.

        Units queued until then share the transaction, and the two threads interrupt each other less.
        """
        waiting = len(self._queue)
        quiet = quiet + 1 if waiting == known else 0
        if quiet < QUIET_ROUNDS and waiting < GROUP_LIMIT:
            self._loop.call_soon(self._gather, waiting, quiet)
            return
        self._is_gathering = False
        # A transaction that `write_blocking` has submitted may have run them all; then there is nothing to submit.
        if self._is_open and self._queue:
            self._is_in_flight = True
            self._submit()

    @property
    def is_about_to_write(self) -> bool:
        return bool(self._queue)

    def write_blocking(self, unit: TransactionBody[T]) -> T:
        """Run a unit from any thread, without an event loop: so locks are renewed while a handler blocks the loop."""
        self._check_open()
        done = threading.Event()
        queued = QueuedUnit(unit, done)
        self._queue.append(queued)
        self._submit()
        done.wait()
        result: T = queued.outcome()
        return result

    def add_claim(self, claim: QueuedClaim) -> None:
        self._claims.add(claim)

    def remove_claim(self, claim: QueuedClaim) -> bool:
        return self._claims.remove(claim)

    async def read(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        """Run a unit on a consistent snapshot that other reads may share."""
        self._check_open()
        return await self._reads.read(unit)

    @property
    def group_sizes(self) -> tuple[int, int]:
        """The number of transactions so far, and of the units that they ran."""
        return self.batch_sizes.count, self.batch_sizes.sum

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnusable("this Ocean is closed")

    def _submit(self) -> None:
        self._writer._tx.put_nowait((None, self._drain))
        if not self._is_open:
            self._drain()

    def _drain(self) -> None:
        """Run the queued units as one transaction. Called on the writer's thread."""
        units = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_LIMIT))]
        if not units:
            return
        if self._queue:
            self._writer._tx.put_nowait((None, self._drain))
        try:
            db = self._writer._conn
            before = db.total_changes
        except (ValueError, sqlite3.ProgrammingError):
            self._refuse(units)
            return
        run_units(db, units, self._claims, self._cache)
        self.batch_sizes.add(len(units))
        # A closed loop has no task left that waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, units, db.total_changes != before)
        for queued in units:
            if isinstance(queued.waiter, threading.Event):
                queued.waiter.set()

    def _refuse(self, units: list[QueuedUnit]) -> None:
        """Fail units that were queued while the database was being closed."""
        for queued in units:
            queued.error = StoreUnusable("this Ocean is closed")
            if isinstance(queued.waiter, threading.Event):
                queued.waiter.set()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, units, False)

    def _deliver(self, units: list[QueuedUnit], has_changed: bool) -> None:
        report_claims(units)
        if has_changed:
            self._note_commit()
        for queued in units:
            if isinstance(queued.waiter, Waiter):
                queued.waiter.set()
        # Units queued meanwhile share a transaction with those that the tasks just woken are about to queue.
        self._is_in_flight = False
        if self._queue and not self._is_gathering:
            self._start_gathering()

    def commits_seen(self) -> int:
        return self._commits

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        while self._commits <= seen:
            self._check_open()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = look_ms
            self._watch_other_processes(look_ms)
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
        return self._commits

    def _note_commit(self) -> None:
        self._commits += 1
        for waiter in self._waiters:
            _finish(waiter)

    def _watch_other_processes(self, look_ms: int) -> None:
        if self._is_memory:
            return
        is_watched = self._watcher is not None and not self._watcher.done()
        if self._watcher is not None and is_watched and look_ms < self._poll_ms:
            # Its current sleep may be longer than the new waiter allows.
            self._watcher.cancel()
            is_watched = False
        if not is_watched:
            self._poll_ms = look_ms
            self._watcher = asyncio.create_task(self._watch_data_version())

    async def _watch_data_version(self) -> None:
        """While a task waits, read the file's data version at the shortest interval that any of them wants."""
        while self._waiters and self._is_open:
            try:
                version = await self._read_data_version()
            except sqlite3.Error:
                # Unknown: wake the waiters, so that they read for themselves and get the error.
                version = self._data_version - 1
            if version != self._data_version:
                self._data_version = version
                self._note_commit()
            self._poll_ms = min(self._waiters.values(), default=self._poll_ms)
            await asyncio.sleep(self._poll_ms / 1000)

    async def _read_data_version(self) -> int:
        """Return a number that changes with every commit of another connection since it was last read."""
        version_read = self._reader._execute(lambda: self._reader._conn.execute("PRAGMA data_version").fetchone()[0])  # type: ignore[no-untyped-call]
        version: int = await version_read
        return version


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
