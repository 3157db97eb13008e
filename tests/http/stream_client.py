"""A server with streams, and clients on plain sockets that check every chunk."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import anyio
import anyio.abc
import anyio.lowlevel
import uvicorn

from ocean import Clog
from ocean.http.app import make_app
from ocean.http.streaming.frames import DirectWriteProtocol
from ocean.http.streaming.sse import sse_response
from ocean.testing import World, world
from tests.http.kit import listening
from tests.invariants import check

TIMEOUT_S = 30
PROTOCOL: type[DirectWriteProtocol] | str = DirectWriteProtocol
"""The HTTP protocol of the server: that of `ocean serve`, or one without direct writes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`data` is the event, or the text of a comment that has neither id nor event."""

    id: int | None
    event: str | None
    data: Any


@dataclass(slots=True)
class Watcher:
    """One connection. `head` contains the status line and the headers in lower case."""

    stream: anyio.abc.SocketStream
    status: int = 0
    head: dict[str, str] = field(default_factory=dict)
    _read: bytes = b""
    _chunks: bytes | None = None
    """The bytes of a chunked body that are not decoded yet; None if the body is not chunked."""

    @classmethod
    async def open(
        cls, port: int, path: str = "/v1/events", last: object = None, method: str = "GET", version: str = "1.1"
    ) -> Self:
        watcher = cls(await anyio.connect_tcp("127.0.0.1", port))
        resumed = "" if last is None else f"Last-Event-ID: {last}\r\n"
        headers = "Host: localhost\r\nConnection: close\r\nAccept: text/event-stream\r\n"
        await watcher.stream.send(f"{method} {path} HTTP/{version}\r\n{headers}{resumed}\r\n".encode())
        status, *lines = (await watcher._until(b"\r\n\r\n")).decode().lower().split("\r\n")
        watcher.status = int(status.split()[1])
        watcher.head = dict(line.split(": ", 1) for line in lines)
        if watcher.head.get("transfer-encoding") == "chunked" and method != "HEAD":
            watcher._chunks, watcher._read = watcher._read, b""
        return watcher

    async def _receive(self) -> bytes:
        """Return the next bytes of the body, a whole chunk if it is chunked; raise EndOfStream after the last."""
        if self._chunks is None:
            return await self.stream.receive()
        while True:
            size, found, rest = self._chunks.partition(b"\r\n")
            if found and len(rest) >= (length := int(size, 16)) + 2:
                chunk, end, self._chunks = rest[:length], rest[length : length + 2], rest[length + 2 :]
                assert end == b"\r\n", rest
                if not chunk:
                    raise anyio.EndOfStream
                return chunk
            self._chunks += await self.stream.receive()

    async def _until(self, mark: bytes) -> bytes:
        try:
            with anyio.fail_after(TIMEOUT_S):
                while mark not in self._read:
                    self._read += await self._receive()
        except BaseException:
            await anyio.aclose_forcefully(self.stream)
            raise
        part, self._read = self._read.split(mark, 1)
        return part

    async def next(self) -> Frame:
        """Return the next event, reset included; raise EndOfStream after the last."""
        while (frame := await self.next_of_any_kind()).event is None:
            pass
        return frame

    async def next_of_any_kind(self) -> Frame:
        text = (await self._until(b"\n\n")).decode()
        if text.startswith((":", "retry:")):
            return Frame(None, None, text)
        lines = [line.split(": ", 1) for line in text.split("\n")]
        assert [name for name, _ in lines] == ["id", "event", "data"], text
        return Frame(int(lines[0][1]), lines[1][1], json.loads(lines[2][1]))

    async def take(self, count: int) -> list[Frame]:
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Frame]:
        """Return all frames until the stream ends by itself."""
        frames = []
        while True:
            try:
                frames.append(await self.next())
            except anyio.EndOfStream:
                assert self._read == b""
                return frames

    async def body(self) -> Any:
        with anyio.fail_after(TIMEOUT_S):
            try:
                while True:
                    self._read += await self._receive()
            except anyio.EndOfStream:
                await self.close()
                return json.loads(self._read) if self._read else None

    async def close(self) -> None:
        await self.stream.aclose()


@dataclass(frozen=True, slots=True)
class StreamServer:
    w: World
    server: uvicorn.Server
    port: int

    async def open(self, path: str = "/v1/events", last: object = None) -> Watcher:
        watcher = await Watcher.open(self.port, path, last)
        assert watcher.status == 200, await watcher.body()
        assert (await watcher.next_of_any_kind()).data.startswith("retry: 1000\nid: ")
        return watcher

    async def run(self, **options: Any) -> str:
        return (await self.w.ocean.create_run(session_id="s", clog_id="c", **options)).run_id

    async def until_left(self, watchers: int) -> None:
        """Wait until this many requests are open, and there are no other followers."""
        with anyio.fail_after(TIMEOUT_S):
            while len(self.server.server_state.tasks) != watchers or self.w.ocean._tail.followers != watchers:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def stream_server(*clogs: Clog) -> AsyncIterator[StreamServer]:
    async with world(clogs=clogs or [Clog("c")]) as w:
        app = make_app(w.ocean, stream=partial(sse_response, clock=w.clock), poke_ms=0)
        async with listening(app, http=PROTOCOL, timeout_graceful_shutdown=5) as (server, port):
            yield StreamServer(w, server, port)
        await check(w)
