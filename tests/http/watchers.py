"""A server with streams, and readers of them on plain sockets: HTTP/1.0, so that a body is what comes until the end."""

import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import anyio
import anyio.abc
import anyio.lowlevel
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ocean import Clog
from ocean.compose import Ocean
from ocean.http.answering import HANDLERS, Answering
from ocean.http.stream import sse_response
from ocean.kernel.arguments import feed_filter
from ocean.kernel.clock import Clock
from ocean.kernel.errors import BadCursor
from ocean.testing import World, world
from tests.invariants import check

PATIENCE_S = 30
CURSOR = re.compile(r"[0-9]{1,18}")


def cursor_of(request: Request) -> int:
    """Where the reader was: `Last-Event-ID`, which a browser repeats by itself, else `?after=`, else the beginning."""
    given = request.query_params.getlist("after")
    if last := request.headers.get("last-event-id"):
        given = [last]
    if not given:
        return 0
    if len(given) > 1 or not CURSOR.fullmatch(given[0]):
        shown = ", ".join(given)[:100]
        raise BadCursor(f"a cursor is the id of an event, a whole number from 0; got {shown!r}")
    return int(given[0])


def stream_app(ocean: Ocean, clock: Clock | None = None) -> Starlette:
    async def events(request: Request) -> Response:
        asked = request.query_params
        types = [name for name in asked.get("types", "").split(",") if name]
        where = feed_filter(request.path_params.get("run_id"), asked.get("session"), None, types, None)
        return await sse_response(ocean, request, where, cursor_of(request), clock=clock)

    routes = [Route("/events", events), Route("/runs/{run_id}/events", events)]
    return Starlette(routes=routes, exception_handlers=HANDLERS, middleware=[Middleware(Answering)])


@dataclass(frozen=True, slots=True)
class Frame:
    """`data` is the event, or the text of a comment that has neither id nor event."""

    id: int | None
    event: str | None
    data: Any


@dataclass(slots=True)
class Watcher:
    """One connection. `head` has the status line and the headers, in lower case."""

    stream: anyio.abc.SocketStream
    status: int = 0
    head: dict[str, str] = field(default_factory=dict)
    _read: bytes = b""

    @classmethod
    async def open(cls, port: int, path: str = "/events", last: object = None, method: str = "GET") -> Self:
        watcher = cls(await anyio.connect_tcp("127.0.0.1", port))
        resumed = "" if last is None else f"Last-Event-ID: {last}\r\n"
        asked = f"{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n{resumed}\r\n"
        await watcher.stream.send(asked.encode())
        status, *lines = (await watcher._until(b"\r\n\r\n")).decode().lower().split("\r\n")
        watcher.status = int(status.split()[1])
        watcher.head = dict(line.split(": ", 1) for line in lines)
        return watcher

    async def _until(self, mark: bytes) -> bytes:
        try:
            with anyio.fail_after(PATIENCE_S):
                while mark not in self._read:
                    self._read += await self.stream.receive()
        except BaseException:
            await anyio.aclose_forcefully(self.stream)
            raise
        part, self._read = self._read.split(mark, 1)
        return part

    async def next(self) -> Frame:
        """The next event, reset included; raises EndOfStream after the last one."""
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
        """All until the stream ends by itself."""
        frames = []
        while True:
            try:
                frames.append(await self.next())
            except anyio.EndOfStream:
                assert self._read == b""
                return frames

    async def body(self) -> Any:
        with anyio.fail_after(PATIENCE_S):
            try:
                while True:
                    self._read += await self.stream.receive()
            except anyio.EndOfStream:
                await self.close()
                return json.loads(self._read) if self._read else None

    async def close(self) -> None:
        await self.stream.aclose()


@dataclass(frozen=True, slots=True)
class Served:
    w: World
    server: uvicorn.Server
    port: int

    async def open(self, path: str = "/events", last: object = None) -> Watcher:
        watcher = await Watcher.open(self.port, path, last)
        assert watcher.status == 200, await watcher.body()
        assert (await watcher.next_of_any_kind()).data == "retry: 1000"
        return watcher

    async def run(self, **options: Any) -> str:
        return (await self.w.ocean.create_run(session_id="s", clog_id="c", **options)).run_id

    async def until_left(self, watchers: int) -> None:
        """Until so many requests are being answered, and nobody else follows."""
        with anyio.fail_after(PATIENCE_S):
            while len(self.server.server_state.tasks) != watchers or self.w.ocean._tail.followers != watchers:
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def served(*clogs: Clog) -> AsyncIterator[Served]:
    async with world(clogs=clogs or [Clog("c")]) as w:
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
            app = stream_app(w.ocean, w.clock)
            config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=5)
            server = uvicorn.Server(config)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listening])
                yield Served(w, server, listening.getsockname()[1])
                server.should_exit = True
        await check(w)
