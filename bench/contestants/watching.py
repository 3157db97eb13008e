"""Readers of a server's streams, many in one process: what each has been told, and when."""

import asyncio
import time
from typing import Any

FIRST = b"event: run.created\n"
"""Whoever has this has what was there before, and follows."""
MARK = b"event: token\n"


class Watcher(asyncio.Protocol):
    """One SSE connection on a run's feed. `seen_at` has a time for every event of type `token`, in their order.

    A protocol, since they share a processor: what one does with its chunk, all after it wait for.
    """

    def __init__(self, port: int, run_id: str) -> None:
        self._port = port
        self._path = f"/v1/runs/{run_id}/events"
        self._rest = b""
        self._is_over = asyncio.Event()
        self.seen_at: list[float] = []
        self.is_ready = asyncio.Event()

    async def watch(self) -> None:
        """Until the run has ended, which ends its feed."""
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
        head = f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        transport.write(head.encode())
        try:
            await self._is_over.wait()
        finally:
            transport.close()

    def data_received(self, data: bytes) -> None:
        now = time.time()
        whole, line_end, self._rest = (self._rest + data).rpartition(b"\n")
        if not self.is_ready.is_set() and FIRST in whole:
            self.is_ready.set()
        self.seen_at += [now] * (whole + line_end).count(MARK)
        if b"event: run.done\n" in whole:
            self._is_over.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over.set()


async def watched(watchers: list[Watcher], begin: Any) -> None:
    """All of them are listening before `begin` is called, and have seen the end after it."""
    tasks = [asyncio.create_task(each.watch()) for each in watchers]
    for each in watchers:
        await each.is_ready.wait()
    await begin()
    await asyncio.wait_for(asyncio.gather(*tasks), 600)
