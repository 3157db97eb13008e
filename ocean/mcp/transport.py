"""The two transports: standard input and output, or `POST /mcp` of the application."""

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
from ocean.http.framework.authorization import authenticate
from ocean.http.framework.call import ServerState
from ocean.http.framework.errors import NotAuthenticated
from ocean.http.routes import WIDE
from ocean.mcp.in_process import GRACE_MS, Sender, app_client
from ocean.mcp.server import McpServer

if TYPE_CHECKING:
    from ocean.compose import Ocean

PATH = "/mcp"
MOST_BYTES = WIDE + 65_536
"""The largest body of a route, and an envelope around it."""


async def serve_pipes(
    ocean: "Ocean", app: Starlette, key: str | None, stop: anyio.Event, *, grace_ms: int = GRACE_MS
) -> bool:
    """Serve until standard input ends, or until `stop` is set: then return True, and a thread still waits for a line.

    At the end the Ocean is stopped: ticks that are running have `grace_ms` to finish.

    Anything else that is printed in the meantime goes to standard error.
    """
    own = Sender.with_key(key)
    try:
        await authenticate(app.state.server, own.request())
    except NotAuthenticated:
        raise NotAuthenticated(
            "this database has keys, so OCEAN_KEY must be a valid one; `ocean keys create` creates one"
            if key
            else "this database has keys, so OCEAN_KEY must be set to one; `ocean keys create` creates one"
        ) from None
    async with app_client(app, ocean.clock) as client:
        pipes = asyncio.create_task(_pipes(McpServer(ocean, client, own).server()))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({pipes, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        app.state.stopping.set()
        await ocean.stop(grace_ms)
        if pipes.done():
            pipes.result()
    return not pipes.done()


async def _pipes(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        # The SDK has taken the descriptor; this redirects text that Python would buffer, and print when it is restored.
        with redirect_stdout(sys.stderr):
            await server.run(read, write, server.create_initialization_options())


@asynccontextmanager
async def mounted(ocean: "Ocean", app: Starlette) -> AsyncIterator[None]:
    """Serve MCP at `POST /mcp` of the application while the block runs. Each request is separate, with its own key."""
    routes_of(ocean.clogs, [PATH])
    async with app_client(app, ocean.clock) as client:
        server = McpServer(ocean, client, Sender(())).server()
        manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=MOST_BYTES
        )
        async with manager.run():
            endpoint = _Endpoint(manager.handle_request, app.state.server)
            app.router.routes.append(Route(PATH, endpoint, methods=["POST"]))
            yield


class _Endpoint:
    """Authenticates the sender before anything of the request is read."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = await authenticate(self._server, Request(scope))
        scope["ocean.actor"] = access.actor
        await self._app(scope, receive, send)
