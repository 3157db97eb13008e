"""A world with the HTTP application: called in the same event loop, or by hand, message by message."""

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

from ocean import UNSET, Clog, Continue, Done, Failed, Ok, Outcome, Refuse, RetryPolicy, RunInfo, Tick, Wait
from ocean.http.app import make_app
from ocean.http.framework.call import Stopping
from ocean.testing import World, world
from tests.invariants import check

CLAIM = {"clogId": "x", "workerId": "w-1"}


@dataclass(frozen=True, slots=True)
class AppWorld:
    """`http` is a client of the application; `w` is the world behind it.

    It has the external clog `x`, the clog `inside` without a handler, and `c`, whose input selects its outcome.
    """

    w: World
    http: httpx2.AsyncClient

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.http.post(path, json={} if body is None else body, **more)

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self.http.get(path, params=query)

    async def get_json(self, path: str, **query: Any) -> Any:
        """Return the JSON of a GET."""
        response = await self.get(path, **query)
        assert response.status_code == 200, response.text
        return response.json()

    async def new_run(self, input: Any = UNSET, **options: Any) -> str:
        """Create a run of `c` in Python and return its id."""
        created = await self.w.ocean.create_run(session_id="s", clog_id="c", input=input, **options)
        return created.run_id

    async def claim(self, **more: Any) -> list[Any]:
        response = await self.post("/v1/leases", CLAIM | more)
        assert response.status_code == 200, response.text
        leases: list[Any] = response.json()["leases"]
        return leases

    async def new_lease(self, input: Any = None, **options: Any) -> Any:
        """Create a run of `x` and lease it."""
        await self.new_external_run(input, **options)
        (lease,) = await self.claim()
        return lease

    async def new_external_run(self, input: Any = UNSET, **options: Any) -> str:
        created = await self.w.ocean.create_run(session_id="s", clog_id="x", input=input, **options)
        return created.run_id

    async def complete(self, lease: Any, outcome: Any, **more: Any) -> httpx2.Response:
        return await self.post(f"/v1/leases/{lease['leaseId']}/complete", {"outcome": outcome} | more)


def scripted_clog() -> Clog:
    """Returns the outcome that its input selects, and has methods of every kind."""
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


def messy_clog() -> Clog:
    """A clog whose last ticks fail on every second call, so that its runs end incomplete until `retry_end`."""
    clog = Clog("messy", end_retry=RetryPolicy(max_attempts=1))

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Ok()

    @clog.on_end
    async def end(tick: Tick) -> Outcome:
        if tick.call_number % 2:
            raise ValueError("cannot clean up")
        return Ok()

    return clog


async def end_incomplete(w: World, run_id: str, session_id: str = "s") -> RunInfo:
    """Create a run of the messy clog, and let it end without its last tick."""
    await w.ocean.create_run(session_id=session_id, clog_id="messy", run_id=run_id)
    await w.ocean.cancel_run(run_id)
    await w.drain()
    run = await w.ocean.get_run(run_id)
    assert run is not None
    assert run.end_incomplete
    return run


@asynccontextmanager
async def app_world(
    url: str = "sqlite://:memory:", more: Iterable[Clog] = (), **settings: Any
) -> AsyncIterator[AppWorld]:
    async with world(clogs=[Clog("x", external=True), Clog("inside"), scripted_clog(), *more], url=url) as w:
        transport = httpx2.ASGITransport(make_app(w.ocean, **({"poke_ms": 0} | settings)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield AppWorld(w, http)
        await check(w)


@asynccontextmanager
async def listening(app: Starlette, **settings: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """Serve the application with a real uvicorn and provide the server and its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", **settings))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [bound])
            yield server, bound.getsockname()[1]
            server.should_exit = True


def error_of(response: httpx2.Response) -> Any:
    """Return the error of a response after checking its envelope."""
    assert (response.headers["cache-control"], response.headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"code", "message", "httpStatus", "retryable", "requestId", "details"}
    assert error["httpStatus"] == response.status_code
    assert error["requestId"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return error


class AsgiCaller:
    """One request as ASGI messages, so that a test decides when its sender disconnects."""

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
        self.is_listening = anyio.Event()
        self.has_response = anyio.Event()
        self.sent: list[Any] = []

    def disconnect(self) -> None:
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        self.is_listening.set()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.has_response.set()

    @property
    def response(self) -> tuple[int, Any]:
        """The status and the JSON of the response."""
        start, body = self.sent
        return start["status"], json.loads(body["body"])

    async def call(self) -> None:
        await self._app(self._scope, self._receive, self._send)
