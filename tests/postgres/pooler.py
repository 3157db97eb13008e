"""A transaction pooler in sixty lines: after every transaction the client goes on with another server connection."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

BACKENDS = 2
SSL_REQUEST = 80877103


class Pooled:
    """One client, and the server connections that it is handed in turn."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._backends: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._turn = 0
        self._current: int | None = None
        self.switches = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        startup = await _startup(reader, writer)
        for _ in range(BACKENDS):
            backend = await asyncio.open_connection(self._host, self._port)
            backend[1].write(startup)
            answer = b""
            while not answer.endswith(b"Z\0\0\0\5I"):
                answer += await backend[0].read(1 << 16)
            self._backends.append(backend)
        writer.write(answer)
        downs = [asyncio.create_task(self._down(place, writer)) for place in range(BACKENDS)]
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                if chunk == b"X\0\0\0\4":
                    break
                if self._current is None:
                    self._turn, self._current = self._turn + 1, self._turn % BACKENDS
                    self.switches += 1
                self._backends[self._current][1].write(chunk)
        for task in downs:
            task.cancel()
        for _, there in self._backends:
            there.transport.abort()
        writer.transport.abort()

    async def _down(self, place: int, writer: asyncio.StreamWriter) -> None:
        reader = self._backends[place][0]
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
                if head[:1] == b"Z" and body == b"I":
                    self._current = None
                writer.write(head + body)


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    while True:
        head = await reader.readexactly(4)
        body = await reader.readexactly(struct.unpack("!i", head)[0] - 4)
        if struct.unpack("!i", body[:4])[0] != SSL_REQUEST:
            # As a pooler does: a setting for one connection would be everybody's.
            assert b"statement_timeout" not in body
            return head + body
        writer.write(b"N")


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[tuple[str, list[Pooled]]]:
    parts = urlsplit(url)
    clients: list[Pooled] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.append(Pooled(parts.hostname or "", parts.port or 5432))
        await clients[-1].serve(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield urlunsplit((parts.scheme, f"{user}127.0.0.1:{port}", parts.path, parts.query, "")), clients
    finally:
        server.close()
        await server.wait_closed()
