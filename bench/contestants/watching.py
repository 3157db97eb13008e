"""Readers of a server's streams, many in one process: what each has been told, and when."""

import asyncio
import time
from typing import Any

FIRST = b"event: run.created\n"
"""Whoever has this has what was there before, and follows."""
MARK = b"event: token\n"


class Watcher(asyncio.Protocol):
    """One SSE connection on a run's feed.

    What comes is only noted, and read when all is over: a thousand share a processor, and what one does with its
    bytes, all after it wait for.
    """

    def __init__(self, port: int, run_id: str) -> None:
        self._port = port
        self._path = f"/v1/runs/{run_id}/events"
        self._came: list[tuple[float, bytes]] = []
        self._is_over = asyncio.Event()
        self.is_ready = asyncio.Event()

    async def watch(self) -> None:
        """Until the run has ended, which ends its feed."""
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
        asked = "Host: 127.0.0.1\r\nConnection: close\r\nAccept: text/event-stream\r\n"
        transport.write(f"GET {self._path} HTTP/1.1\r\n{asked}\r\n".encode())
        try:
            await self._is_over.wait()
        finally:
            transport.close()

    def data_received(self, data: bytes) -> None:
        self._came.append((time.time(), data))
        if not self.is_ready.is_set() and FIRST in b"".join(data for _, data in self._came):
            self.is_ready.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over.set()

    @property
    def seen_at(self) -> list[float]:
        """A time for every event of type `token`, in their order."""
        times: list[float] = []
        rest = b""
        for at, data in self._came:
            whole, line_end, rest = (rest + data).rpartition(b"\n")
            times += [at] * (whole + line_end).count(MARK)
        return times


async def watched(watchers: list[Watcher], begin: Any) -> None:
    """All of them are listening before `begin` is called, and have seen the end after it."""
    tasks = [asyncio.create_task(each.watch()) for each in watchers]
    for each in watchers:
        await each.is_ready.wait()
    await begin()
    await asyncio.wait_for(asyncio.gather(*tasks), 600)
