"""One SQLite database as threads see it: a writer that runs whole transactions, and a reader beside it.

A transaction is a function. It runs in one hop on the writer's thread and never spans an `await`, so a cancelled
caller cannot leave it half open. Functions that come together, or while another transaction commits, share the next
one: a refused one leaves no trace, and the others stand.

This and `looking` are the only places that touch aiosqlite's private names (`_tx`, `_thread`, `_conn`); tests pin them.
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
from ocean.stores.sqlite.engine.cache import Known
from ocean.stores.sqlite.engine.connection import OLDEST_SQLITE, open_connection
from ocean.stores.sqlite.engine.group_commit import Item, Ordered, Orders, Unit, is_busy, run_items, tell_of_claims
from ocean.stores.sqlite.engine.reader import Looks
from ocean.stores.sqlite.migrate import migrate

T = TypeVar("T")

GROUP_LIMIT = 256
QUIET_ROUNDS = 2


class Database:
    def __init__(self, path: str) -> None:
        self._path = path
        self._is_memory = path == ":memory:"
        self._queue: deque[Item] = deque()
        self._orders = Orders()
        self._known = Known()
        self.batch_sizes = Histogram(BATCHES)
        self._is_gathering = False
        self._is_on_its_way = False
        self._commits = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._look_ms = 0
        self._watcher: asyncio.Task[None] | None = None
        self._writer = self._connection()
        self._reader = self._writer if self._is_memory else self._connection()
        self._looks = Looks(self._reader)
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
            self._data_version = await self._look_at_data_version()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.close()
                await self._join_threads()
            if is_busy(error):
                raise StoreBusy(f"another process holds database {self._path!r} for itself; try again") from error
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
        self._looks.close()

    async def _join_threads(self) -> None:
        """A connection that failed to open answers from its thread once more; wait for that."""
        for connection in {self._writer, self._reader}:
            if connection._thread.is_alive():
                await anyio.to_thread.run_sync(connection._thread.join)

    connect: Callable[..., sqlite3.Connection] = staticmethod(sqlite3.connect)
    """Whoever sets another before `open` chooses the disk: how tests cut its power and let it fail."""

    def _connection(self) -> aiosqlite.Connection:
        connection = aiosqlite.Connection(lambda: open_connection(self.connect, self._path), iter_chunk_size=64)
        # A process that forgot to close must still be able to exit.
        connection._thread.daemon = True
        return connection

    async def on_writer(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the writer's thread, outside any transaction of ours."""
        result: T = await self._writer._execute(lambda: fn(self._writer._conn))  # type: ignore[no-untyped-call]
        return result

    async def write(self, unit: Unit[T]) -> T:
        """Run a unit in a write transaction, perhaps shared. Its result is known even if the caller is cancelled."""
        self._check_open()
        waiter = Waiter()
        item = Item(unit, waiter)
        self._queue.append(item)
        if not self._is_gathering and not self._is_on_its_way:
            self._begin_to_gather()
        await waiter.told()
        result: T = item.outcome()
        return result

    def _begin_to_gather(self) -> None:
        self._is_gathering = True
        self._loop.call_soon(self._gather, len(self._queue), 0)

    def _gather(self, known: int, quiet: int) -> None:
        """Submit when rounds of the loop have brought nothing more: whoever comes until then shares the transaction,
        and the two threads do not get in each other's way."""
        waiting = len(self._queue)
        quiet = quiet + 1 if waiting == known else 0
        if quiet < QUIET_ROUNDS and waiting < GROUP_LIMIT:
            self._loop.call_soon(self._gather, waiting, quiet)
            return
        self._is_gathering = False
        # A thread may have taken them along, and then nobody is told of another transaction.
        if self._is_open and self._queue:
            self._is_on_its_way = True
            self._submit()

    @property
    def is_about_to_write(self) -> bool:
        return bool(self._queue)

    def write_blocking(self, unit: Unit[T]) -> T:
        """The same from any thread, without an event loop: how locks are renewed while a handler blocks the loop."""
        self._check_open()
        done = threading.Event()
        item = Item(unit, done)
        self._queue.append(item)
        self._submit()
        done.wait()
        result: T = item.outcome()
        return result

    def order(self, order: Ordered) -> None:
        self._orders.put(order)

    def take_back(self, order: Ordered) -> bool:
        return self._orders.take_back(order)

    async def read(self, unit: Callable[[sqlite3.Connection], T]) -> T:
        """Run a unit on one consistent snapshot, perhaps shared."""
        self._check_open()
        return await self._looks.look(unit)

    @property
    def group_sizes(self) -> tuple[int, int]:
        """How many transactions there were, and how many units they carried."""
        return self.batch_sizes.count, self.batch_sizes.sum

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnusable("this Ocean is closed")

    def _submit(self) -> None:
        self._writer._tx.put_nowait((None, self._drain))
        if not self._is_open:
            self._drain()

    def _drain(self) -> None:
        """On the writer's thread: take all that has queued up and commit it as one transaction."""
        items = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP_LIMIT))]
        if not items:
            return
        if self._queue:
            self._writer._tx.put_nowait((None, self._drain))
        try:
            db = self._writer._conn
            before = db.total_changes
        except (ValueError, sqlite3.ProgrammingError):
            self._refuse(items)
            return
        run_items(db, items, self._orders, self._known)
        self.batch_sizes.add(len(items))
        # A loop that is closed has nobody left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, items, db.total_changes != before)
        for item in items:
            if isinstance(item.waiter, threading.Event):
                item.waiter.set()

    def _refuse(self, items: list[Item]) -> None:
        """Units that slipped in while the database was being closed."""
        for item in items:
            item.error = StoreUnusable("this Ocean is closed")
            if isinstance(item.waiter, threading.Event):
                item.waiter.set()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell, items, False)

    def _tell(self, items: list[Item], has_changed: bool) -> None:
        tell_of_claims(items)
        if has_changed:
            self._noticed_commit()
        for item in items:
            if isinstance(item.waiter, Waiter):
                item.waiter.tell()
        # Who has come meanwhile leaves together with those who were answered now and have more to say.
        self._is_on_its_way = False
        if self._queue and not self._is_gathering:
            self._begin_to_gather()

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

    def _noticed_commit(self) -> None:
        self._commits += 1
        for waiter in self._waiters:
            _finish(waiter)

    def _watch_other_processes(self, look_ms: int) -> None:
        if self._is_memory:
            return
        is_watched = self._watcher is not None and not self._watcher.done()
        if self._watcher is not None and is_watched and look_ms < self._look_ms:
            # It may be asleep for longer than the newcomer can wait.
            self._watcher.cancel()
            is_watched = False
        if not is_watched:
            self._look_ms = look_ms
            self._watcher = asyncio.create_task(self._watch_data_version())

    async def _watch_data_version(self) -> None:
        """While somebody waits: one cheap look at the file's version, in real time, as often as the hastiest asks."""
        while self._waiters and self._is_open:
            try:
                version = await self._look_at_data_version()
            except sqlite3.Error:
                # Nobody knows: whoever waits looks for itself, and is told what is the matter.
                version = self._data_version - 1
            if version != self._data_version:
                self._data_version = version
                self._noticed_commit()
            self._look_ms = min(self._waiters.values(), default=self._look_ms)
            await asyncio.sleep(self._look_ms / 1000)

    async def _look_at_data_version(self) -> int:
        """Changes with every commit that the reader's connection did not make, since it was last looked at."""
        look = self._reader._execute(lambda: self._reader._conn.execute("PRAGMA data_version").fetchone()[0])  # type: ignore[no-untyped-call]
        version: int = await look
        return version


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
