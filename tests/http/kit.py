"""A world with the application on it: asked in the same event loop, or by hand, message by message."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2

from ocean import UNSET, Clog
from ocean.http.app import make_app
from ocean.testing import World, world
from tests.invariants import check

CLAIM = {"clogId": "x", "workerId": "w-1"}


@dataclass(frozen=True, slots=True)
class House:
    """`http` asks the application; `w` is the world behind it, with the external clog `x` and the clog `inside`."""

    w: World
    http: httpx2.AsyncClient

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.http.post(path, json={} if body is None else body, **more)

    async def claim(self, **more: Any) -> list[Any]:
        answer = await self.post("/v1/leases", CLAIM | more)
        assert answer.status_code == 200, answer.text
        leases: list[Any] = answer.json()["leases"]
        return leases

    async def leased(self, input: Any = None, **options: Any) -> Any:
        """A new run, leased."""
        await self.run(input, **options)
        (lease,) = await self.claim()
        return lease

    async def run(self, input: Any = UNSET, **options: Any) -> str:
        made = await self.w.ocean.create_run(session_id="s", clog_id="x", input=input, **options)
        return made.run_id

    async def complete(self, lease: Any, outcome: Any, **more: Any) -> httpx2.Response:
        return await self.post(f"/v1/leases/{lease['leaseId']}/complete", {"outcome": outcome} | more)


@asynccontextmanager
async def house(url: str = "sqlite://:memory:") -> AsyncIterator[House]:
    async with world(clogs=[Clog("x", external=True), Clog("inside")], url=url) as w:
        transport = httpx2.ASGITransport(make_app(w.ocean))
        async with httpx2.AsyncClient(transport=transport, base_url="http://house") as http:
            yield House(w, http)
        await check(w)


def error_of(answer: httpx2.Response) -> Any:
    """The error in an answer, after a look at its envelope."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"code", "message", "httpStatus", "retryable", "requestId", "details"}
    assert error["httpStatus"] == answer.status_code
    assert error["requestId"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    return error


class Caller:
    """One request as ASGI messages, so that a test decides when its sender goes away."""

    def __init__(self, w: World, path: str, body: Any) -> None:
        self._app = make_app(w.ocean)
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "server": ("house", 80),
        }
        self._body: bytes | None = json.dumps(body).encode()
        self._gone = anyio.Event()
        self.listens = anyio.Event()
        self.sent: list[Any] = []

    def go_away(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        self.listens.set()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    async def ask(self) -> None:
        await self._app(self._scope, self._receive, self._send)
