"""Noticing commits: this process's own at once, others' by looking, and sooner if the server says so.

A notification only shortens the wait: whoever waits looks every so often in any case, by the connection that listens,
which has to show that it is still there anyway.
"""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from ocean.state.errors import OceanError, StoreUnusable
from ocean.stores.postgres.client.connection import LOST, Connection, ConnectionPool

if TYPE_CHECKING:
    Listener = asyncpg.Connection[asyncpg.Record]
else:
    # At run time the driver's classes take no parameters.
    Listener = Any

CURSOR = "SELECT greatest((SELECT seq FROM events ORDER BY seq DESC LIMIT 1), (SELECT seq FROM ocean_log_floor))"
CHANNEL = "ocean"
PROBE_MS = 5_000
"""How often a listener that nobody looks by is asked whether it is still there, and how long it may take to answer."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 5_000
"""Before a lost listener is replaced; doubled each time until one has lasted."""
CLOSING_S = 5


class Notifications:
    def __init__(self, pool: ConnectionPool, *, probe_ms: int = PROBE_MS) -> None:
        self._pool = pool
        self._probe_s = probe_ms / 1000
        self._commits = 0
        self._cursor = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._look_ms = 0
        self._watcher: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._listening: Listener | None = None
        self._asking = asyncio.Lock()
        self._has_answered = False
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._ending = asyncio.Event()
        self._is_open = False
        self._pause_ms = FIRST_PAUSE_MS
        self.listeners = 0
        self.looks = 0

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._wake()
        for event in (self._changed, self._lost, self._ending):
            event.set()
        for task in (self._watcher, self._listener):
            if task is not None:
                # Mostly they end by themselves: to stop the driver in the middle costs more than to let it finish.
                await asyncio.wait({task}, timeout=CLOSING_S)
                task.cancel()
                await asyncio.wait({task})

    def commits_seen(self) -> int:
        return self._commits

    def note_commit(self) -> None:
        self._commits += 1
        if self._waiters:
            # A round later: what was claimed along with the commit is ahead of whoever only looks.
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        for waiter in self._waiters:
            _finish(waiter)

    async def next_commit(self, seen: int, look_ms: int) -> int:
        while self._commits <= seen:
            if not self._is_open:
                raise StoreUnusable("this Ocean is closed")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = look_ms
            self._watch(look_ms)
            try:
                await waiter
            finally:
                self._waiters.pop(waiter, None)
        return self._commits

    def _watch(self, look_ms: int) -> None:
        if self._listener is None and self._pool.options.listens:
            self._listener = asyncio.create_task(self._listen())
        is_watched = self._watcher is not None and not self._watcher.done()
        if is_watched and look_ms < self._look_ms:
            # It may be asleep for longer than the newcomer can wait.
            self._changed.set()
        if not is_watched:
            self._look_ms = look_ms
            self._watcher = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self._waiters and self._is_open:
            self._changed.clear()
            self.looks += 1
            with suppress(OceanError):
                cursor = await self._read_cursor()
                if cursor != self._cursor:
                    self._cursor = cursor
                    self.note_commit()
            self._look_ms = min(self._waiters.values(), default=self._look_ms)
            await _set(self._changed, self._look_ms / 1000)

    async def _read_cursor(self) -> int:
        """By the connection that listens, if there is one: so it is found out too whether it is still there."""
        if self._listening is not None:
            try:
                return await self._ask(self._listening)
            except (*LOST, asyncpg.PostgresError):
                # The driver may have said so only to whoever asked.
                self._lost.set()
        return await self._pool.read(_cursor)

    async def _ask(self, db: Listener) -> int:
        """A listener that does not answer in time is given up."""
        async with self._asking:
            asked = asyncio.ensure_future(_cursor(db))
            answered, _ = await asyncio.wait({asked}, timeout=self._probe_s)
            if not answered:
                db.terminate()
            cursor = await asked
            self._has_answered = True
            return cursor

    async def _listen(self) -> None:
        """One connection that only listens, made again when it is lost."""
        while self._is_open:
            self._lost.clear()
            with suppress(*LOST, asyncpg.PostgresError):
                options = self._pool.options
                db = await asyncpg.connect(options.url, **options.connecting("ocean listener"))
                try:
                    await db.add_listener(CHANNEL, self._heard)
                    self.listeners += 1
                    self._listening = db
                    # Nobody was told of what was committed before.
                    self._changed.set()
                    await self._until_lost(db)
                finally:
                    self._listening = None
                    db.terminate()
            await _set(self._ending, self._pause_ms / 1000)
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    async def _until_lost(self, db: Listener) -> None:
        """A connection that nothing comes from may be closed, or dead without a word: so it is made to answer."""
        db.add_termination_listener(lambda _: self._lost.set())
        while self._is_open and not await _set(self._lost, self._probe_s):
            if not self._has_answered:
                await self._ask(db)
            self._has_answered = False
            self._pause_ms = FIRST_PAUSE_MS

    def _heard(self, _: object, pid: int, *__: object) -> None:
        """What was committed from here is known already: to look for it would only be in the way of what it brings."""
        if not self._pool.owns(pid):
            self._changed.set()


async def _cursor(db: Connection) -> int:
    return int(await db.fetchval(CURSOR))


async def _set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, so long at most; whether it came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
