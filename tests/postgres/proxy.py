"""A TCP proxy between driver and server. It counts requests, and cuts, swallows or delays those with given bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before", "after", "swallow", "late", "held"]
"""What happens to a request: its connection is cut before the server gets it, or after the server has responded; it is
swallowed silently; the connection is cut, and the request reaches the server when the test releases it; or it is only
delayed until then."""

CHUNK = 1 << 16


class Proxy:
    """`arm` sets what happens to the next request that contains given bytes, once."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._handlers: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._wires: set[Wire] = set()
        self._cut: Cut | None = None
        self._marker = b""
        self._let_through = 0
        self.has_cut = asyncio.Event()
        self.lets_go = asyncio.Event()
        self.unheard: asyncio.Queue[bytes] = asyncio.Queue()
        self.requests = 0
        self.connections = 0
        self.is_down = False
        self.is_down_once_cut = False
        self.is_black_hole = False

    def arm(self, cut: Cut, marker: bytes, *, let_through: int = 0) -> None:
        """How many such requests are passed before."""
        self._cut, self._marker, self._let_through = cut, marker, let_through
        self.has_cut.clear()
        self.lets_go.clear()

    def cut_all(self) -> None:
        """Cut every connection, at both ends."""
        for end in list(self._ends):
            end.transport.abort()

    def freeze(self, marker: bytes) -> None:
        """Keep the connections that have carried these bytes open, but pass nothing more."""
        for wire in self._wires:
            wire.is_frozen = wire.is_frozen or marker in wire.carried

    async def end(self) -> None:
        """Wait until no client is served: a task left at the end of the loop would log an error."""
        self.lets_go.set()
        while self._handlers:
            self.cut_all()
            await asyncio.wait(self._handlers)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        self._ends.add(writer)
        try:
            if not self.is_down and not (self.is_down_once_cut and self.has_cut.is_set()):
                self.connections += 1
                await self._serve(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._ends.discard(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        self._ends.add(there_writer)
        wire = Wire(reader, writer, there_reader, there_writer)
        self._wires.add(wire)
        up, down = asyncio.create_task(self._up(wire)), asyncio.create_task(self._down(wire))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            writer.transport.abort()
            await up
        finally:
            down.cancel()
            await asyncio.wait({up, down})
            there_writer.transport.abort()
            self._ends.discard(there_writer)
            self._wires.discard(wire)

    async def _up(self, wire: "Wire") -> None:
        with suppress(OSError):
            while chunk := await wire.from_client.read(CHUNK):
                self.requests += 1
                wire.carried += chunk
                if self.is_black_hole or wire.is_frozen:
                    continue
                if self._cut is not None and self._is_it(chunk):
                    cut, self._cut = self._cut, None
                    if not await self._goes_on(cut, wire):
                        return
                    if cut == "swallow":
                        continue
                wire.to_server.write(chunk)
                await wire.to_server.drain()
            if wire.is_late:
                await wire.has_answer.wait()

    def _is_it(self, chunk: bytes) -> bool:
        if self._marker not in chunk:
            return False
        self._let_through -= 1
        return self._let_through < 0

    async def _goes_on(self, cut: Cut, wire: "Wire") -> bool:
        wire.drops_answers = cut in ("after", "swallow", "late")
        if cut != "after":
            self.has_cut.set()
        if cut == "late":
            wire.is_late = True
            wire.to_client.transport.abort()
        if cut in ("late", "held"):
            await self.lets_go.wait()
        return cut != "before"

    async def _down(self, wire: "Wire") -> None:
        with suppress(OSError):
            while chunk := await wire.from_server.read(CHUNK):
                if self.is_black_hole or wire.is_frozen:
                    continue
                if wire.drops_answers:
                    # The server has committed or refused; the client does not get the result.
                    self.unheard.put_nowait(chunk)
                    self.has_cut.set()
                    break
                wire.to_client.write(chunk)
                await wire.to_client.drain()
        wire.has_answer.set()


@dataclass(eq=False)
class Wire:
    """One client connection and its server connection."""

    from_client: asyncio.StreamReader
    to_client: asyncio.StreamWriter
    from_server: asyncio.StreamReader
    to_server: asyncio.StreamWriter
    drops_answers: bool = False
    is_late: bool = False
    is_frozen: bool = False
    carried: bytes = b""
    has_answer: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[str, Proxy]]:
    """The URL of the same database, through a proxy."""
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname or "", parts.port or 5432)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield urlunsplit((parts.scheme, f"{user}127.0.0.1:{port}", parts.path, parts.query, "")), proxy
    finally:
        server.close()
        await proxy.end()
