"""Noticing commits: this process's own at once, others' by looking, and sooner if the server says so.

A notification only shortens the wait: whoever waits looks every so often in any case.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from ocean.kernel.errors import OceanError, StoreUnusable
from ocean.stores.postgres.link import LOST, Connection, Link

if TYPE_CHECKING:
    Listener = asyncpg.Connection[asyncpg.Record]
else:
    # At run time the driver's classes take no parameters.
    Listener = Any

CURSOR = "SELECT greatest((SELECT seq FROM events ORDER BY seq DESC LIMIT 1), (SELECT seq FROM ocean_log_floor))"
CHANNEL = "ocean"
PROBE_MS = 5_000
"""How often a listener that hears nothing is asked whether it is still there, and how long it may take to answer."""
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 50, 5_000
"""Before a lost listener is replaced; doubled each time until one listens."""
CLOSING_S = 5


class Waking:
    def __init__(self, link: Link, *, probe_ms: int = PROBE_MS) -> None:
        self._link = link
        self._probe_s = probe_ms / 1000
        self._commits = 0
        self._cursor = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._look_ms = 0
        self._watcher: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._told = asyncio.Event()
        self._is_open = False
        self.listeners = 0

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        for waiter in self._waiters:
            _finish(waiter)
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})
        if self._watcher is not None:
            # Its last look may end: a statement that is cancelled costs another connection.
            self._told.set()
            await asyncio.wait({self._watcher}, timeout=CLOSING_S)
            self._watcher.cancel()
            await asyncio.wait({self._watcher})

    def commits_seen(self) -> int:
        return self._commits

    def noticed(self) -> None:
        self._commits += 1
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
        if self._listener is None and self._link.options.listens:
            self._listener = asyncio.create_task(self._listen())
        is_watched = self._watcher is not None and not self._watcher.done()
        if is_watched and look_ms < self._look_ms:
            # It may be asleep for longer than the newcomer can wait.
            self._told.set()
        if not is_watched:
            self._look_ms = look_ms
            self._watcher = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self._waiters and self._is_open:
            self._told.clear()
            with suppress(OceanError):
                cursor = await self._link.read(_cursor)
                if cursor != self._cursor:
                    self._cursor = cursor
                    self.noticed()
            self._look_ms = min(self._waiters.values(), default=self._look_ms)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_ms / 1000):
                    await self._told.wait()

    async def _listen(self) -> None:
        """One connection that only listens, made again when it is lost."""
        pause_ms = FIRST_PAUSE_MS
        while self._is_open:
            with suppress(*LOST, asyncpg.PostgresError):
                options = self._link.options
                db = await asyncpg.connect(options.url, **options.connecting("ocean listener"))
                try:
                    await db.add_listener(CHANNEL, self._heard)
                    pause_ms = FIRST_PAUSE_MS
                    self.listeners += 1
                    # Nobody was told of what was committed before.
                    self._told.set()
                    await self._until_lost(db)
                finally:
                    db.terminate()
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)

    async def _until_lost(self, db: Listener) -> None:
        """A connection that nothing comes from may be closed, or dead without a word: so it is made to answer."""
        lost = asyncio.Event()
        db.add_termination_listener(_setter(lost))
        while not lost.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._probe_s):
                    await lost.wait()
                    return
            probe = asyncio.ensure_future(db.fetchval("SELECT 1"))
            answered, _ = await asyncio.wait({probe}, timeout=self._probe_s)
            if not answered:
                db.terminate()
            await probe

    def _heard(self, *_: Any) -> None:
        self._told.set()


async def _cursor(db: Connection) -> int:
    return int(await db.fetchval(CURSOR))


def _setter(event: asyncio.Event) -> Callable[[Any], None]:
    return lambda _: event.set()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
