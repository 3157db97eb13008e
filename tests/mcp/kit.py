"""A world whose application serves MCP, called by the SDK's own client."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from starlette.applications import Starlette
from typing_extensions import TypedDict

from ocean import Clog, Tick
from ocean.http.app import make_app
from ocean.mcp.transport import mounted
from ocean.state.records import KeyScope
from ocean.testing import World, world
from tests.http.kit import scripted_clog
from tests.invariants import check

URL = "http://127.0.0.1/mcp"


class Line(TypedDict):
    text: str
    times: int


def parrot() -> Clog:
    """A clog whose method has an annotated payload."""
    clog = Clog("parrot")

    @clog.method
    async def repeat(tick: Tick, payload: Line) -> str:
        """Repeat a text."""
        return payload["text"] * payload["times"]

    return clog


def closed() -> Clog:
    """A clog that allows nothing to the generic routes."""
    clog = Clog("closed", generic=[])

    @clog.method
    async def peek(tick: Tick, payload: Any) -> str:
        return "secret"

    return clog


@dataclass(frozen=True, slots=True)
class McpWorld:
    w: World
    app: Starlette

    async def key(self, *scopes: KeyScope, **more: Any) -> str:
        return (await self.w.ocean.create_api_key("ann", scopes, **more)).key

    @asynccontextmanager
    async def http(self, key: str | None = None, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        shown = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx2.ASGITransport(self.app)
        async with httpx2.AsyncClient(transport=transport, headers=shown | headers) as http:
            yield http

    @asynccontextmanager
    async def client(self, key: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
        async with (
            self.http(key) as http,
            Client(streamable_http_client(URL, http_client=http), mode=mode) as client,
        ):
            yield client


@asynccontextmanager
async def mcp_world(more: Iterable[Clog] = (), poke_ms: int = 0) -> AsyncIterator[McpWorld]:
    async with world(clogs=[scripted_clog(), parrot(), closed(), *more]) as w:
        app = make_app(w.ocean, poke_ms=poke_ms)
        async with mounted(w.ocean, app):
            yield McpWorld(w, app)
        await check(w)


def result_of(result: CallToolResult) -> Any:
    """Return the result of a call that must have succeeded."""
    assert not result.is_error, result.structured_content
    return result.structured_content


def error_of(result: CallToolResult) -> Any:
    """Return the error of a refused call after checking its form."""
    assert result.is_error, result.structured_content
    body = result.structured_content
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "httpStatus", "retryable", "requestId", "details"}
    (content,) = result.content
    assert content.type == "text"
    assert body["error"]["code"] in content.text
    assert "Traceback" not in content.text
    assert body["error"]["requestId"]
    return body["error"]
