"""Readers of a server's streams, many in one process, that record what they receive and when."""

import asyncio
import time
from typing import Any

FIRST = b"event: run.created\n"
"""A watcher that has received this event follows the live stream."""
MARK = b"event: token\n"


class Watcher(asyncio.Protocol):
    """One SSE connection on a run's feed.

    Received bytes are only stored, and parsed at the end: a thousand watchers share a processor, and the work of one
    would delay all others.
    """

    def __init__(self, port: int, run_id: str) -> None:
        self._port = port
        self._path = f"/v1/runs/{run_id}/events"
        self._received: list[tuple[float, bytes]] = []
        self._is_over = asyncio.Event()
        self.is_ready = asyncio.Event()

    async def watch(self) -> None:
        """Read until the run has ended, which ends its feed."""
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
        headers = "Host: 127.0.0.1\r\nConnection: close\r\nAccept: text/event-stream\r\n"
        transport.write(f"GET {self._path} HTTP/1.1\r\n{headers}\r\n".encode())
        try:
            await self._is_over.wait()
        finally:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._received.append((time.time(), data))
        if not self.is_ready.is_set() and FIRST in b"".join(data for _, data in self._received):
            self.is_ready.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over.set()

    @property
    def seen_at(self) -> list[float]:
        """When each event of type `token` was received, in order."""
        times: list[float] = []
        rest = b""
        for at, data in self._received:
            whole, line_end, rest = (rest + data).rpartition(b"\n")
            times += [at] * (whole + line_end).count(MARK)
        return times


async def watch_all(watchers: list[Watcher], begin: Any) -> None:
    """Start all watchers, call `begin` when all are listening, and return when all have seen the end."""
    tasks = [asyncio.create_task(each.watch()) for each in watchers]
    for each in watchers:
        await each.is_ready.wait()
    await begin()
    await asyncio.wait_for(asyncio.gather(*tasks), 600)
