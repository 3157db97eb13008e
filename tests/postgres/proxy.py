"""A TCP proxy between driver and server: it cuts, swallows and counts, when some bytes come by that a test names."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before", "after", "never", "swallow"]


class Proxy:
    """`cut` and `marker` say what becomes of the next request that has these bytes in it, once."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.cut: Cut = "never"
        self.marker = b""
        self.has_cut = asyncio.Event()
        self.requests = 0
        self.is_down = False

    def arm(self, cut: Cut, marker: bytes) -> None:
        self.cut, self.marker = cut, marker
        self.has_cut.clear()

    def cut_all(self) -> None:
        """Every connection there is, from both ends."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        ends = {writer, there_writer}
        self._writers |= ends
        drops = asyncio.Event()
        up = asyncio.create_task(self._up(reader, there_writer, drops))
        down = asyncio.create_task(self._down(there_reader, writer, drops))
        self._tasks |= {up, down}
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down):
            task.cancel()
        for end in ends:
            end.transport.abort()
        self._writers -= ends

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drops: asyncio.Event) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                self.requests += 1
                if self.cut != "never" and self.marker in chunk:
                    cut, self.cut = self.cut, "never"
                    if cut == "before":
                        self.has_cut.set()
                        return
                    drops.set()
                    if cut == "swallow":
                        self.has_cut.set()
                        continue
                writer.write(chunk)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drops: asyncio.Event) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if drops.is_set():
                    # The server has answered, so it has committed; nobody hears of it.
                    self.has_cut.set()
                    return
                writer.write(chunk)
                await writer.drain()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[str, Proxy]]:
    """The same database, through a proxy."""
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname or "", parts.port or 5432)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield urlunsplit((parts.scheme, f"{user}127.0.0.1:{port}", parts.path, parts.query, "")), proxy
    finally:
        proxy.cut_all()
        server.close()
        await server.wait_closed()
