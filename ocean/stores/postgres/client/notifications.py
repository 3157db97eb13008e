"""Noticing commits: those of this process at once, those of others by polling, and sooner by a notification.

A notification only shortens the wait: the log is polled in any case while a task waits. The poll uses the connection
that listens, which also checks that this connection is alive.
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
"""How often an unused listener is probed, and how long it may take to respond."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 5_000
"""The pause before a lost listener is replaced; doubled each time until one has lasted."""
CLOSING_S = 5


class Notifications:
    """Counts the commits that this process has made or noticed, and wakes the tasks that wait for the next one."""

    def __init__(self, pool: ConnectionPool, *, probe_ms: int = PROBE_MS) -> None:
        self._pool = pool
        self._probe_s = probe_ms / 1000
        self._commits = 0
        self._cursor = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._poll_ms = 0
        self._watcher: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._listening: Listener | None = None
        self._reading = asyncio.Lock()
        self._has_responded = False
        self._poll_now = asyncio.Event()
        self._lost = asyncio.Event()
        self._ending = asyncio.Event()
        self._is_open = False
        self._pause_ms = FIRST_PAUSE_MS
        self.listeners = 0
        self.polls = 0

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._wake()
        for event in (self._poll_now, self._lost, self._ending):
            event.set()
        for task in (self._watcher, self._listener):
            if task is not None:
                # Usually they end by themselves, which is cheaper than cancelling the driver's statement.
                await asyncio.wait({task}, timeout=CLOSING_S)
                task.cancel()
                await asyncio.wait({task})

    def commits_seen(self) -> int:
        return self._commits

    def note_commit(self) -> None:
        self._commits += 1
        if self._waiters:
            # One round later, so that runs claimed by this commit start before waiting tasks look for work.
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
        if is_watched and look_ms < self._poll_ms:
            # Its current sleep may be longer than the new waiter allows.
            self._poll_now.set()
        if not is_watched:
            self._poll_ms = look_ms
            self._watcher = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while self._waiters and self._is_open:
            self._poll_now.clear()
            self.polls += 1
            with suppress(OceanError):
                cursor = await self._read_cursor()
                if cursor != self._cursor:
                    self._cursor = cursor
                    self.note_commit()
            self._poll_ms = min(self._waiters.values(), default=self._poll_ms)
            await _wait_for(self._poll_now, self._poll_ms / 1000)

    async def _read_cursor(self) -> int:
        """Read the last cursor by the connection that listens, if there is one; this also checks that it is alive."""
        if self._listening is not None:
            try:
                return await self._read_by(self._listening)
            except (*LOST, asyncpg.PostgresError):
                # The driver may report the loss only to this call.
                self._lost.set()
        return await self._pool.read(_cursor)

    async def _read_by(self, db: Listener) -> int:
        """Read the cursor by the listener. It is closed if it does not respond in time."""
        async with self._reading:
            read = asyncio.ensure_future(_cursor(db))
            done, _ = await asyncio.wait({read}, timeout=self._probe_s)
            if not done:
                db.terminate()
            cursor = await read
            self._has_responded = True
            return cursor

    async def _listen(self) -> None:
        """Keep one connection that listens, and replace it when it is lost."""
        while self._is_open:
            self._lost.clear()
            with suppress(*LOST, asyncpg.PostgresError):
                options = self._pool.options
                db = await asyncpg.connect(options.url, **options.connect_arguments("ocean listener"))
                try:
                    await db.add_listener(CHANNEL, self._on_notification)
                    self.listeners += 1
                    self._listening = db
                    # Commits before this moment were not notified: poll now.
                    self._poll_now.set()
                    await self._until_lost(db)
                finally:
                    self._listening = None
                    db.terminate()
            await _wait_for(self._ending, self._pause_ms / 1000)
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)

    async def _until_lost(self, db: Listener) -> None:
        """Probe a silent connection until it is lost: it may have broken without notice."""
        db.add_termination_listener(lambda _: self._lost.set())
        while self._is_open and not await _wait_for(self._lost, self._probe_s):
            if not self._has_responded:
                await self._read_by(db)
            self._has_responded = False
            self._pause_ms = FIRST_PAUSE_MS

    def _on_notification(self, _: object, pid: int, *__: object) -> None:
        """Poll after a notification, unless it is of this process's own commit, which is already known."""
        if not self._pool.owns(pid):
            self._poll_now.set()


async def _cursor(db: Connection) -> int:
    return int(await db.fetchval(CURSOR))


async def _wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most this long; returns whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
