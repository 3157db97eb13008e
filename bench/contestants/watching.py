"""Readers of a server's streams, many in one process: what each has been told, and when."""

import asyncio
import time
from typing import Any

FIRST = b"event: run.created\n"
"""Whoever has this has what was there before, and follows."""
MARK = b"event: token\n"


class Watcher:
    """One SSE connection on a run's feed. `seen_at` has a time for every event of type `token`, in their order."""

    def __init__(self, port: int, run_id: str) -> None:
        self._port = port
        self._path = f"/v1/runs/{run_id}/events"
        self.seen_at: list[float] = []
        self.is_ready = asyncio.Event()

    async def watch(self) -> None:
        """Until the run has ended, which ends its feed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        rest = b""
        while chunk := await reader.read(1 << 16):
            now = time.time()
            whole, line_end, rest = (rest + chunk).rpartition(b"\n")
            if not self.is_ready.is_set() and FIRST in whole:
                self.is_ready.set()
            self.seen_at += [now] * (whole + line_end).count(MARK)
            if b"event: run.done\n" in whole:
                break
        writer.close()


async def watched(watchers: list[Watcher], begin: Any) -> None:
    """All of them are listening before `begin` is called, and have seen the end after it."""
    tasks = [asyncio.create_task(each.watch()) for each in watchers]
    for each in watchers:
        await each.is_ready.wait()
    await begin()
    await asyncio.wait_for(asyncio.gather(*tasks), 600)
