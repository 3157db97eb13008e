"""The routes on a real server: bodies that are too long, callers that disconnect, a server that stops."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import anyio
import anyio.lowlevel
import httpx2
import pytest
import uvicorn

from ocean import Clog, RunStatus
from ocean.http.app import make_app
from ocean.http.framework.routing import escaped_path
from ocean.state.values import MAX_BYTES
from ocean.testing import World, world
from tests.http.kit import CLAIM, error_of, listening
from tests.http.stream_client import Watcher
from tests.invariants import check
from tests.lifecycle.acting import let_others_go_on, look

pytestmark = pytest.mark.anyio

TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class SocketServer:
    w: World
    server: uvicorn.Server
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until_requests(self, count: int) -> None:
        """Wait until this many requests are open."""
        with anyio.fail_after(TIMEOUT_S):
            while len(self.server.server_state.tasks) != count:
                await anyio.lowlevel.checkpoint()

    async def run(self) -> str:
        return (await self.w.ocean.create_run(session_id="s", clog_id="x", input={})).run_id


@asynccontextmanager
async def socket_server() -> AsyncIterator[SocketServer]:
    async with world(clogs=[Clog("x", external=True), Clog("y")]) as w:
        async with listening(make_app(w.ocean, poke_ms=0), timeout_graceful_shutdown=0) as (server, port):
            yield SocketServer(w, server, port)
        await check(w)


def request(body: Any, path: str = "/v1/leases") -> bytes:
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def test_work_is_claimed_renewed_and_completed_over_a_socket() -> None:
    async with socket_server() as s, httpx2.AsyncClient(base_url=s.url) as http:
        run_id = await s.run()
        (lease,) = (await http.post("/v1/leases", json=CLAIM)).json()["leases"]
        renewed = await http.post(f"/v1/leases/{lease['leaseId']}/renew", json={})
        assert renewed.json() == {"expiresAt": lease["expiresAt"]}
        done = await http.post(
            f"/v1/leases/{lease['leaseId']}/complete", json={"outcome": {"type": "done", "output": "ä"}}
        )
        assert (done.status_code, done.json()["status"]) == (200, "done")
        assert (await look(s.w, run_id)).output == "ä"


@pytest.mark.parametrize("run_id", ["a/b", "/", "a%2Fb", "100%", "ä ?#&+", "..", "a/../b", "cancel"])
async def test_any_name_can_be_escaped_in_a_path(run_id: str) -> None:
    name = quote(run_id, safe="")
    async with socket_server() as s:
        await s.w.ocean.create_run(session_id=run_id, clog_id="x", run_id=run_id)
        for path in (f"/v1/runs/{name}", f"/v1/runs/{name}/events", f"/v1/sessions/{name}/events"):
            # Without an HTTP client, which would normalize dots in the path.
            status, body = await send_line(s.port, f"GET {path} HTTP/1.0")
            assert (status, body.get("runId") or body["events"][0]["runId"]) == (200, run_id)
        status, body = await send_line(s.port, f"DELETE /v1/%72uns/{name} HTTP/1.0")
        assert (status, body) == (200, {"deleted": True})


async def test_an_unescaped_slash_ends_a_name_except_that_of_a_key() -> None:
    async with socket_server() as s:
        await s.w.ocean.create_run(session_id="s", clog_id="x", run_id="a/b")
        assert (await send_line(s.port, "GET /v1/runs/a/b HTTP/1.0"))[0] == 404
        for key in ("tenant/7", "tenant%2F7", "tenant%2f7"):
            status, body = await send_line(s.port, f"GET /v1/keys/{key} HTTP/1.0")
            assert (status, body["key"]) == (200, "tenant/7")


async def test_a_server_without_raw_paths_works_too() -> None:
    assert escaped_path({"path": "/v1/runs/a b%"}) == "/v1/runs/a%20b%25"
    assert escaped_path({"path": "/x", "raw_path": b"/v1/%72uns/a%2fb"}) == "/v1/runs/a%2Fb"


async def send_line(port: int, line: str) -> tuple[int, Any]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(f"{line}\r\nHost: localhost\r\n\r\n".encode())
        response = b"".join([part async for part in stream])
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_a_caller_that_disconnects_gets_no_work() -> None:
    async with socket_server() as s:
        stream = await anyio.connect_tcp("127.0.0.1", s.port)
        await stream.send(request(CLAIM | {"waitMs": 60_000}))
        await s.until_requests(1)
        await let_others_go_on(s.w)
        await stream.aclose()
        await s.until_requests(0)
        run_id = await s.run()
        await let_others_go_on(s.w)
        assert (await look(s.w, run_id)).status is RunStatus.PENDING


async def test_a_body_without_an_end_is_cut_off() -> None:
    async with socket_server() as s, httpx2.AsyncClient(base_url=s.url) as http:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 65_536
                yield b" " * 65_536

        headers = {"content-type": "application/json"}
        try:
            response = await http.post("/v1/leases", content=endless(), headers=headers)
        except httpx2.TransportError:
            pass  # The server responds and disconnects while the body is still being sent.
        else:
            assert (response.status_code, error_of(response)["code"]) == (413, "body_too_large")
        assert sent < 64 * MAX_BYTES
        assert (await http.post("/v1/leases", json=CLAIM)).status_code == 200


async def test_each_feed_streams_its_own_events_live() -> None:
    feeds = {
        "/v1/runs/b/events": ["run.created", "run.failed"],
        "/v1/sessions/t/events": ["run.created", "run.failed"],
        "/v1/clogs/x/events": ["run.created", "run.created", "run.failed"],
        "/v1/clogs/y/events?types=run.created": ["run.created"],
        "/v1/events?types=run.failed&types=run.done": ["run.failed"],
        "/v1/events?correlationId=b": ["run.created", "run.failed"],
        "/v1/events?after=1": ["run.created", "run.created", "run.failed"],
    }
    async with socket_server() as s:
        ocean = s.w.ocean
        await ocean.create_run(session_id="s", clog_id="x", run_id="a")
        await ocean.create_run(session_id="t", clog_id="x", run_id="b")
        watchers = {path: await Watcher.open(s.port, path) for path in feeds}
        await ocean.create_run(session_id="s", clog_id="y", run_id="c")
        await ocean.cancel_run("b")
        for path, wanted in feeds.items():
            frames = await watchers[path].take(len(wanted))
            assert [frame.event for frame in frames] == wanted, path
            seqs = [frame.data["seq"] for frame in frames]
            assert seqs == sorted(set(seqs)) == [frame.id for frame in frames], path
        assert await watchers["/v1/runs/b/events"].rest() == []
        for watcher in watchers.values():
            await watcher.close()


async def test_a_stopping_server_leases_nothing_to_waiting_callers() -> None:
    async with socket_server() as s:
        stream = await anyio.connect_tcp("127.0.0.1", s.port)
        await stream.send(request(CLAIM | {"waitMs": 60_000}))
        await s.until_requests(1)
        await let_others_go_on(s.w)
        s.server.should_exit = True
        await s.until_requests(0)
        await stream.aclose()
        run_id = await s.run()
        assert (await look(s.w, run_id)).status is RunStatus.PENDING
