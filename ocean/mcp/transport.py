"""How it is reached: over standard input and output, or as `POST /mcp` of the application."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ocean.clog.routes import routes_of
from ocean.http.framework.authorization import identified
from ocean.http.framework.call import Served
from ocean.http.framework.errors import NotAuthenticated
from ocean.http.routes import WIDE
from ocean.mcp.in_process import Sender, insider
from ocean.mcp.server import Agents

if TYPE_CHECKING:
    from ocean.compose import Ocean

PATH = "/mcp"
MOST_BYTES = WIDE + 65_536
"""What the largest of the routes takes, and an envelope around it."""


async def serve_pipes(ocean: "Ocean", app: Starlette, key: str | None, stop: anyio.Event) -> bool:
    """Until standard input ends, or `stop` is set: then True, and a thread still waits for a line that may never come.

    Whatever else is printed meanwhile goes to standard error.
    """
    own = Sender.with_key(key)
    try:
        await identified(app.state.served, own.request())
    except NotAuthenticated:
        raise NotAuthenticated(
            "this database has keys, and what OCEAN_KEY has is not one that is valid; `ocean keys create` makes one"
            if key
            else "this database has keys: set OCEAN_KEY to one; `ocean keys create` makes one"
        ) from None
    async with insider(app, ocean.clock) as inside:
        pipes = asyncio.create_task(_pipes(Agents(ocean, inside, own).server()))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({pipes, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if pipes.done():
            pipes.result()
    return not pipes.done()


async def _pipes(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        # The SDK has taken the descriptor; this is for what Python would keep, and print when that is given back.
        with redirect_stdout(sys.stderr):
            await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def mounted(ocean: "Ocean", app: Starlette) -> AsyncIterator[None]:
    """While the block lasts, the application answers MCP too. Each request stands alone and shows its own key."""
    routes_of(ocean.clogs, [PATH])
    async with insider(app, ocean.clock) as inside:
        server = Agents(ocean, inside, Sender(())).server()
        manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MOST_BYTES
        )
        async with manager.run():
            endpoint = _Endpoint(manager.handle_request, app.state.served)
            app.router.routes.append(Route(PATH, endpoint, methods=["POST"]))
            yield


class _Endpoint:
    """Nothing is read of a request before it is known who sends it."""

    def __init__(self, then: ASGIApp, served: Served) -> None:
        self._then = then
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = await identified(self._served, Request(scope))
        scope["ocean.actor"] = access.actor
        await self._then(scope, receive, send)
