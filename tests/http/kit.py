"""A world with the application on it: asked in the same event loop, or by hand, message by message."""

import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
import uvicorn
from starlette.applications import Starlette

from ocean import UNSET, Clog, Continue, Done, Failed, Ok, Outcome, Refuse, Tick, Wait
from ocean.http.app import make_app
from ocean.http.framework.call import Stopping
from ocean.testing import World, world
from tests.invariants import check

CLAIM = {"clogId": "x", "workerId": "w-1"}


@dataclass(frozen=True, slots=True)
class House:
    """`http` asks the application; `w` is the world behind it.

    It has the external clog `x`, the clog `inside` without a handler, and `c`, which does as its input says.
    """

    w: World
    http: httpx2.AsyncClient

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.http.post(path, json={} if body is None else body, **more)

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.http.get(path, params=query)

    async def asked(self, path: str, **query: Any) -> Any:
        """What is answered to a GET."""
        answer = await self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def made(self, input: Any = UNSET, **options: Any) -> str:
        """A new run of `c`, in Python."""
        made = await self.w.ocean.create_run(session_id="s", clog_id="c", input=input, **options)
        return made.run_id

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


def obedient() -> Clog:
    """Answers the outcome that its input asks for, and has methods of every kind."""
    clog = Clog("c")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        match tick.input:
            case {"done": output}:
                return Done(output)
            case {"fail": message}:
                return Failed(message)
            case {"wait": ms}:
                return Wait(for_ms=ms)
            case {"more": input}:
                return Continue(input)
            case {"say": payload}:
                await tick.emit("said", payload)
        return Ok()

    @clog.method
    async def echo(tick: Tick, payload: Any) -> Any:
        return payload

    @clog.method
    async def add(tick: Tick, payload: Any) -> int:
        n: int = ((await tick.read(session=True)).session or 0) + payload
        await tick.write(session=n)
        return n

    @clog.method
    async def refuse(tick: Tick, payload: Any) -> None:
        await tick.emit("refused", payload)
        raise Refuse("not today", code="own_code", http_status=422, details={"own_key": payload})

    return clog


@asynccontextmanager
async def house(url: str = "sqlite://:memory:", more: Iterable[Clog] = (), **settings: Any) -> AsyncIterator[House]:
    async with world(clogs=[Clog("x", external=True), Clog("inside"), obedient(), *more], url=url) as w:
        transport = httpx2.ASGITransport(make_app(w.ocean, **({"poke_ms": 0} | settings)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield House(w, http)
        await check(w)


@asynccontextmanager
async def listening(app: Starlette, **settings: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """The application on a real uvicorn, and its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", **settings))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [bound])
            yield server, bound.getsockname()[1]
            server.should_exit = True


def error_of(answer: httpx2.Response) -> Any:
    """The error in an answer, after a look at its envelope."""
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
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

    def __init__(self, w: World, path: str, body: Any, query: str = "", app: Starlette | None = None) -> None:
        self._app = app or make_app(w.ocean, poke_ms=0)
        self.stopping: Stopping = self._app.state.stopping
        self._scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": query.encode(),
            "headers": [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        self._body: bytes | None = json.dumps(body).encode()
        self._gone = anyio.Event()
        self.listens = anyio.Event()
        self.is_answered = anyio.Event()
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
        if message["type"] == "http.response.body":
            self.is_answered.set()

    @property
    def answer(self) -> tuple[int, Any]:
        """The status and the JSON that were sent."""
        start, body = self.sent
        return start["status"], json.loads(body["body"])

    async def ask(self) -> None:
        await self._app(self._scope, self._receive, self._send)
