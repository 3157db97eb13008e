"""A transaction pooler in sixty lines: after every transaction the client gets another server connection."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

BACKENDS = 2
SSL_REQUEST = 80877103
CANCEL_REQUEST = 80877102
GONE = (OSError, asyncio.IncompleteReadError)
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooled:
    """One client, and the server connections that it gets in turn."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._backends: list[Ends] = []
        self._turn = 0
        self._current: int | None = None
        self.switches = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        downs: list[asyncio.Task[None]] = []
        try:
            startup = await _startup(reader, writer)
            if startup is None:
                return
            self._backends = [await self._connected(startup, writer, place) for place in range(BACKENDS)]
            downs = [asyncio.create_task(self._down(place, writer)) for place in range(BACKENDS)]
            await self._up(reader)
        except GONE:
            pass
        finally:
            for _, there in self._backends:
                there.transport.abort()
            writer.transport.abort()
            # They end at the end of their input. A cancelled task would log an error at the end of the loop.
            await asyncio.gather(*downs)

    async def _connected(self, startup: bytes, writer: asyncio.StreamWriter, place: int) -> Ends:
        """The first server connection greets the client."""
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        there_writer.write(startup)
        kind = b""
        while kind != b"Z":
            kind, message = await _message(there_reader)
            if not place:
                writer.write(message)
        return there_reader, there_writer

    async def _up(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(1 << 16):
            if chunk == b"X\0\0\0\4":
                return
            if self._current is None:
                self._turn, self._current = self._turn + 1, self._turn % BACKENDS
                self.switches += 1
            self._backends[self._current][1].write(chunk)

    async def _down(self, place: int, writer: asyncio.StreamWriter) -> None:
        with suppress(*GONE):
            while True:
                kind, message = await _message(self._backends[place][0])
                if kind == b"Z" and message.endswith(b"I"):
                    self._current = None
                writer.write(message)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    """Return the client's startup message; None if it only requests that a statement be cancelled, which is ignored."""
    while True:
        head = await reader.readexactly(4)
        body = await reader.readexactly(struct.unpack("!i", head)[0] - 4)
        code = struct.unpack("!i", body[:4])[0]
        if code == CANCEL_REQUEST:
            return None
        if code != SSL_REQUEST:
            # As a pooler does: a parameter of one connection would apply to all clients.
            assert b"_timeout" not in body
            return head + body
        writer.write(b"N")


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[tuple[str, list[Pooled]]]:
    parts = urlsplit(url)
    clients: list[Pooled] = []
    served: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served[task] = writer
        task.add_done_callback(served.pop)
        clients.append(Pooled(parts.hostname or "", parts.port or 5432))
        await clients[-1].serve(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield urlunsplit((parts.scheme, f"{user}127.0.0.1:{port}", parts.path, parts.query, "")), clients
    finally:
        server.close()
        while served:
            for writer in served.values():
                writer.transport.abort()
            await asyncio.wait(served)
