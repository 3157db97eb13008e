"""A thread with its own event loop and connection, started when it is first needed.

Locks are renewed here, so that this does not wait for a handler that blocks the main event loop.
"""

import asyncio
import threading
from dataclasses import replace
from typing import Any

from ocean.state.clock import Clock
from ocean.state.errors import StoreUnusable
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.connection import ConnectionPool
from ocean.stores.postgres.client.options import Options

STATEMENT_MS, LOCK_MS = 6_000, 4_000
RETRY_PAUSES_MS = (0, 50, 200, 800)
"""Fewer than elsewhere: a failure to renew must be reported before the locks lapse."""


class LockThread:
    """Executes verbs on its own thread, for callers that block."""

    def __init__(self, options: Options, clock: Clock) -> None:
        statement_ms, lock_ms = min(options.statement_ms, STATEMENT_MS), min(options.lock_ms, LOCK_MS)
        self._options = replace(options, pool=1, statement_ms=statement_ms, lock_ms=lock_ms)
        self._clock = clock
        self._starting = threading.Lock()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opening = asyncio.Lock()
        self._pool: ConnectionPool | None = None
        self._batches: WriteBatches | None = None

    def write(self, verb: str, args: Any) -> Any:
        """Block until the verb is committed. Must be called from another thread; listeners are not notified."""
        with self._starting:
            if self._is_closed:
                raise StoreUnusable("this Ocean is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="ocean-locks", daemon=True)
                self._thread.start()
            # Submit under the lock, so that `close` waits for it.
            writing = asyncio.run_coroutine_threadsafe(self._write(verb, args), self._loop)
        return writing.result()

    async def _write(self, verb: str, args: Any) -> Any:
        return await (await self._opened()).write(verb, args)

    async def _opened(self) -> WriteBatches:
        async with self._opening:
            if self._batches is None:
                pool = ConnectionPool(self._options, self._clock, name="ocean locks", retry_pauses_ms=RETRY_PAUSES_MS)
                await pool.open()
                self._pool, self._batches = pool, WriteBatches(pool, notifies=False)
            return self._batches

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
            if self._loop is None or self._thread is None:
                return
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    async def _close(self) -> None:
        async with self._opening:
            if self._batches is not None and self._pool is not None:
                await self._batches.close()
                await self._pool.close()
