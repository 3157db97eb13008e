"""Requests to the HTTP application inside this process, on behalf of an MCP client."""

import json
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

import anyio
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message, Scope

from ocean.http.framework.authorization import CSRF_TOKEN, PROXY_HEADERS
from ocean.http.framework.errors import unexpected
from ocean.http.framework.idempotency import IDEMPOTENCY_KEY
from ocean.state.clock import Clock

FORWARDED = PROXY_HEADERS | {"authorization", "cookie", "host", "origin", "sec-fetch-site", CSRF_TOKEN.lower()}
"""All headers that `ocean.http.framework.authorization` reads: a call is authorized like the request it came with."""
GRACE_MS = 10_000

log = logging.getLogger("ocean.mcp")


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a request: headers, address and scheme that the application sees."""

    headers: tuple[tuple[bytes, bytes], ...]
    client: tuple[str, int] | None = ("127.0.0.1", 0)
    scheme: str = "http"

    @classmethod
    def of(cls, request: Request) -> "Sender":
        """Return the sender of a request over HTTP."""
        kept = tuple((name, value) for name, value in request.headers.raw if name.decode("latin-1") in FORWARDED)
        client = None if request.client is None else (request.client.host, request.client.port)
        return cls(kept, client, request.url.scheme)

    @classmethod
    def with_key(cls, key: str | None) -> "Sender":
        """Return a process of this machine as the sender, with a key if it has one."""
        shown = ((b"authorization", f"Bearer {key}".encode()),) if key else ()
        return cls(((b"host", b"localhost"), *shown))

    def scope(self, method: str, path: str, query: str = "", more: Iterable[tuple[bytes, bytes]] = ()) -> Scope:
        """Return the ASGI scope of a request from this sender."""
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": self.scheme,
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [*self.headers, *more],
            "client": self.client,
            "server": None,
        }

    def request(self) -> Request:
        """Return a request that only serves to authenticate the sender."""
        return Request(self.scope("GET", "/mcp"))


@dataclass(frozen=True, slots=True)
class AppRequest:
    """One request: `path` is escaped, `query` is pairs of strings, `body` is JSON or None."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    request_key: str | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that the body and the key need."""
        headers = [] if self.body is None else [(b"content-type", b"application/json")]
        if self.request_key is not None:
            headers.append((IDEMPOTENCY_KEY.lower().encode(), self.request_key.encode("utf-8", "replace")))
        return headers


@dataclass(frozen=True, slots=True)
class AppResponse:
    """The application's response."""

    status: int
    body: Any

    @property
    def is_error(self) -> bool:
        """Whether the application refused the request."""
        return self.status >= 400


class AppClient:
    """Sends requests to the application. Background work of a response continues after the response is returned."""

    def __init__(self, app: Starlette, tasks: TaskGroup) -> None:
        self.app = app
        self._tasks = tasks

    async def send(self, sender: Sender, request: AppRequest) -> AppResponse:
        """Return the response to a request. A cancelled caller counts as disconnected; the work is not cancelled."""
        exchange = _Exchange(request)
        scope = sender.scope(request.method, request.path, urlencode(request.query), request.headers())
        self._tasks.start_soon(exchange.run, self.app, scope)
        try:
            await exchange.is_complete.wait()
        finally:
            exchange.is_disconnected.set()
        return exchange.response()


@asynccontextmanager
async def app_client(app: Starlette, clock: Clock) -> AsyncIterator[AppClient]:
    """Provide a client. At the end, waiting requests return at once, and background work has ten seconds to finish."""
    cancel_timer = _nothing
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield AppClient(app, tasks)
            finally:
                app.state.stopping.set()
                cancel_timer = clock.call_later(GRACE_MS, tasks.cancel_scope.cancel)
    finally:
        cancel_timer()


def _nothing() -> None:
    return None


class _Exchange:
    """One request and its response, as ASGI messages."""

    def __init__(self, request: AppRequest) -> None:
        self._body: bytes | None = b"" if request.body is None else json.dumps(request.body).encode()
        self._status: int | None = None
        self._parts: list[bytes] = []
        self.is_complete = anyio.Event()
        self.is_disconnected = anyio.Event()

    async def run(self, app: Starlette, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            log.exception("a call failed after its response")
        finally:
            self.is_complete.set()

    def response(self) -> AppResponse:
        if self._status is None:
            return AppResponse(500, unexpected("none"))
        return AppResponse(self._status, json.loads(b"".join(self._parts)))

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.is_disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            return
        self._parts.append(message.get("body", b""))
        if not message.get("more_body"):
            self.is_complete.set()
