"""Requests that the application answers within this process, on behalf of whoever speaks MCP."""

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

from ocean.http.framework.authorization import BY_A_PROXY, CSRF_TOKEN
from ocean.http.framework.errors import unexpected
from ocean.http.framework.routing import IDEMPOTENCY_KEY
from ocean.state.clock import Clock

PASSED_ON = BY_A_PROXY | {"authorization", "cookie", "host", "origin", "sec-fetch-site", CSRF_TOKEN.lower()}
"""All that `ocean.http.framework.authorization` looks at: a call is judged as the request that it came with."""
GRACE_MS = 10_000

log = logging.getLogger("ocean.mcp")


@dataclass(frozen=True, slots=True)
class Sender:
    """Who asks, as the application is told it."""

    headers: tuple[tuple[bytes, bytes], ...]
    client: tuple[str, int] | None = ("127.0.0.1", 0)
    scheme: str = "http"

    @classmethod
    def of(cls, request: Request) -> "Sender":
        kept = tuple((name, value) for name, value in request.headers.raw if name.decode("latin-1") in PASSED_ON)
        client = None if request.client is None else (request.client.host, request.client.port)
        return cls(kept, client, request.url.scheme)

    @classmethod
    def with_key(cls, key: str | None) -> "Sender":
        """A process of this machine, which shows the key if it has one."""
        shown = ((b"authorization", f"Bearer {key}".encode()),) if key else ()
        return cls(((b"host", b"localhost"), *shown))

    def scope(self, method: str, path: str, query: str = "", more: Iterable[tuple[bytes, bytes]] = ()) -> Scope:
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
        """For those who only want to know who it is."""
        return Request(self.scope("GET", "/mcp"))


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: `path` is escaped, `query` pairs of texts, `body` JSON or none."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    request_key: str | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        said = [] if self.body is None else [(b"content-type", b"application/json")]
        if self.request_key is not None:
            said.append((IDEMPOTENCY_KEY.lower().encode(), self.request_key.encode("utf-8", "replace")))
        return said


@dataclass(frozen=True, slots=True)
class Said:
    status: int
    body: Any

    @property
    def is_refusal(self) -> bool:
        return self.status >= 400


class Insider:
    """Asks the application; what it does behind its answers goes on after they are handed out."""

    def __init__(self, app: Starlette, tasks: TaskGroup) -> None:
        self.app = app
        self._tasks = tasks

    async def ask(self, sender: Sender, asked: Asked) -> Said:
        """A caller who gives up is one who has hung up: what was begun is not cancelled in the middle."""
        exchange = _Exchange(asked)
        scope = sender.scope(asked.method, asked.path, urlencode(asked.query), asked.headers())
        self._tasks.start_soon(exchange.run, self.app, scope)
        try:
            await exchange.answered.wait()
        finally:
            exchange.hung_up.set()
        return exchange.said()


@asynccontextmanager
async def insider(app: Starlette, clock: Clock) -> AsyncIterator[Insider]:
    """At the end those who wait are answered, and what is still moved on has ten seconds for it."""
    relent = _nothing
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield Insider(app, tasks)
            finally:
                app.state.stopping.set()
                relent = clock.call_later(GRACE_MS, tasks.cancel_scope.cancel)
    finally:
        relent()


def _nothing() -> None:
    return None


class _Exchange:
    """One request and its answer, as ASGI messages."""

    def __init__(self, asked: Asked) -> None:
        self._body: bytes | None = b"" if asked.body is None else json.dumps(asked.body).encode()
        self._status: int | None = None
        self._parts: list[bytes] = []
        self.answered = anyio.Event()
        self.hung_up = anyio.Event()

    async def run(self, app: Starlette, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception:
            log.exception("a call failed behind its answer")
        finally:
            self.answered.set()

    def said(self) -> Said:
        if self._status is None:
            return Said(500, unexpected("none"))
        return Said(self._status, json.loads(b"".join(self._parts)))

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            return
        self._parts.append(message.get("body", b""))
        if not message.get("more_body"):
            self.answered.set()
