"""Servers that are killed or stopped while clients watch. The log is in a file that outlives them."""

import json
import random
import signal
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from ocean import Ocean
from tests.http.serve_process import ServeProcess, serve_process
from tests.http.stream_client import TIMEOUT_S, Watcher
from tests.http.talker_clog import talker

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("processes")]

TALKER = "tests.http.talker_clog:talker"
LONG_S = 3 * TIMEOUT_S
LOST = (OSError, anyio.EndOfStream, anyio.BrokenResourceError)
"""The errors of a connection whose server has stopped or has not started yet."""
FEEDS = (("/v1/events", 2), ("/v1/sessions/s/events", 2), ("/v1/events?types=talked", 1))
"""Each feed, and how many of its events one call of `talk` adds: the emitted event, and the call itself."""


@dataclass
class GrowingLog:
    """A log that this process and the server extend to a known end, and the clients that watch it."""

    path: Path
    total: int
    port: int = 0
    calls: int = 0
    resets: int = 0
    stalls: int = 0
    joined: dict[int, list[int]] = field(default_factory=dict)
    is_growing: bool = True
    is_up: anyio.Event = field(default_factory=anyio.Event)
    has_changed: anyio.Event = field(default_factory=anyio.Event)

    def change(self) -> None:
        self.has_changed.set()
        self.has_changed = anyio.Event()

    async def until_called(self, count: int) -> None:
        with anyio.fail_after(LONG_S):
            while self.calls < count:
                await self.has_changed.wait()

    async def until_joined(self, count: int) -> None:
        """Wait until every watcher has the ids of this many calls; slow ones continue to read in the meantime."""
        self.is_growing = False
        self.change()
        with anyio.fail_after(LONG_S):
            while any(len(ids) < count * FEEDS[number % 3][1] for number, ids in self.joined.items()):
                await self.has_changed.wait()
        self.is_growing = True

    async def grow(self, ocean: Ocean, count: int, by_http: bool = False) -> None:
        for _ in range(count):
            payload = {"n": self.calls, "filling": "x" * 20_000 * (self.calls % 5 == 0)}
            if by_http:
                await post(self.port, "/v1/clogs/talker/call/talk", {"sessionId": "s", "payload": payload})
            else:
                await ocean.call_clog(clog_id="talker", session_id="s", method="talk", payload=payload)
            self.calls += 1
            self.change()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[ServeProcess]:
        """Serve on the same port each time. Watchers that cannot connect wait for this event, not for time."""
        async with serve_process(self.path, TALKER, self.port) as server:
            self.port = server.port
            self.is_up.set()
            yield server

    async def end(self, server: ServeProcess, number: signal.Signals) -> tuple[int, str]:
        self.is_up = anyio.Event()
        return await server.ended(number)

    async def watch(self, number: int) -> None:
        rng, ids = random.Random(f"torture:{number}"), self.joined[number]
        path, each = FEEDS[number % 3]
        total = self.total * each
        while len(ids) < total:
            await self.is_up.wait()
            if rng.random() < 0.2:
                await self.reset_before_headers(path, whole=rng.random() < 0.5)
            try:
                watcher = await Watcher.open(self.port, path, last=ids[-1] if ids else 0)
            except LOST:
                await anyio.lowlevel.checkpoint()
                continue
            await self.read(watcher, ids, total, rng)

    async def read(self, watcher: Watcher, ids: list[int], total: int, rng: random.Random) -> None:
        """Read a part of the stream, perhaps slowly; then disconnect and reconnect."""
        is_slow, most = rng.random() < 0.1, rng.randint(1, total)
        try:
            while most and len(ids) < total:
                while is_slow and self.is_growing:
                    self.stalls += 1
                    await self.has_changed.wait()
                frame = await watcher.next()
                assert frame.id is not None
                ids.append(frame.id)
                most -= 1
                self.change()
        except LOST:
            pass
        finally:
            await anyio.aclose_forcefully(watcher.stream)

    async def reset_before_headers(self, path: str, whole: bool) -> None:
        try:
            stream = await anyio.connect_tcp("127.0.0.1", self.port)
        except LOST:
            return
        raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n" + ("\r\n" if whole else "")
        try:
            await stream.send(request.encode())
            self.resets += 1
        finally:
            await anyio.aclose_forcefully(stream)


async def post(port: int, path: str, body: object) -> None:
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(text)}\r\n\r\n"
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send((head + text).encode())
        response = b"".join([part async for part in stream])
    assert response.startswith(b"HTTP/1.1 200 "), response


async def test_two_hundred_watchers_get_every_id_once_over_drops_resets_and_restarts(
    tmp_path: Path,
) -> None:
    """The server is killed once and stopped once; the log also grows while no server runs."""
    growing_log = GrowingLog(tmp_path / "ocean.db", total=30, joined={number: [] for number in range(200)})
    async with Ocean.open(f"sqlite:///{growing_log.path}", clogs=[talker]) as ocean, anyio.create_task_group() as tasks:
        for number in growing_log.joined:
            tasks.start_soon(growing_log.watch, number)
        async with growing_log.served() as first:
            await growing_log.grow(ocean, 5)
            await growing_log.grow(ocean, 5, by_http=True)
            await growing_log.until_joined(5)
            tasks.start_soon(growing_log.grow, ocean, 5)
            await growing_log.until_called(12)
            assert await growing_log.end(first, signal.SIGKILL) == (-signal.SIGKILL, "")
        await growing_log.until_called(15)
        async with growing_log.served() as second:
            await growing_log.grow(ocean, 5, by_http=True)
            await growing_log.until_joined(15)
            assert await growing_log.end(second, signal.SIGTERM) == (0, "")
        await growing_log.grow(ocean, 5)
        async with growing_log.served() as third:
            await growing_log.grow(ocean, 5, by_http=True)
            await growing_log.until_joined(30)
            assert await growing_log.end(third, signal.SIGTERM) == (0, "")
        events = await ocean.read_events(limit=1_000)
    wanted = [[event.seq for event in events], [event.seq for event in events if event.type == "talked"]]
    assert [len(ids) for ids in wanted] == [60, 30]
    assert [number for number, ids in growing_log.joined.items() if ids != wanted[number % 3 == 2]] == []
    assert (growing_log.resets > 20, growing_log.stalls > 20) == (True, True)


async def test_a_stopped_server_ends_its_streams_at_once_and_without_errors(tmp_path: Path) -> None:
    path = tmp_path / "ocean.db"
    async with serve_process(path, TALKER) as server, Ocean.open(f"sqlite:///{path}", clogs=[talker]) as ocean:
        run = await ocean.create_run(session_id="s", clog_id="talker")
        paths = ("/v1/events", f"/v1/runs/{run.run_id}/events") * 3
        watchers = [await Watcher.open(server.port, each) for each in paths]
        for watcher in watchers:
            await watcher.next()
        server.process.send_signal(signal.SIGTERM)
        assert [await watcher.rest() for watcher in watchers] == [[]] * 6
        assert await server.ended(signal.SIGTERM) == (0, "")
