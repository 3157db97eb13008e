"""The ASGI application: all routes, with the middleware and the exception handlers around them."""

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware

from ocean.clog.routes import routes_of
from ocean.http.framework.call import ServerState, StreamFeed, poke_after_response
from ocean.http.framework.clog_routes import make_clog_routes
from ocean.http.framework.middleware import EXCEPTION_HANDLERS, RequestMiddleware
from ocean.http.framework.routing import make_routes
from ocean.http.handlers.webhooks import HOOKS, WebhookTable, webhook_route
from ocean.http.openapi import clog_document
from ocean.http.routes import TABLE
from ocean.http.streaming.sse import sse_response

if TYPE_CHECKING:
    from ocean.compose import Ocean

POKE_MS = 500
READY_AGE_MS = 60_000


def make_app(
    ocean: "Ocean",
    *,
    stream: StreamFeed | None = sse_response,
    poke_ms: int = POKE_MS,
    ready_age_ms: int = READY_AGE_MS,
    hosts: Collection[str] = (),
) -> Starlette:
    """Return an ASGI application for an open Ocean, which must stay open while the application is served.

    `stream` serves clients that accept `text/event-stream`; None refuses them. After a request that changed something,
    due runs are advanced for up to `poke_ms`; 0 leaves this to other pokes. `/readyz` fails when a run has been due
    for more than `ready_age_ms`. While the database has no keys, only loopback names and those in `hosts` are accepted
    in the Host header. Call `app.state.stopping.set()` before stopping the server: requests that wait for a run or a
    lease then return at once.

    The routes and webhooks of the Ocean's clogs are served too. A route without an access policy, or a webhook without
    its secret in the environment, raises here.
    """
    clog_routes = routes_of(ocean.clogs, [HOOKS, *(op.path for op in TABLE)])
    webhooks = WebhookTable.of(ocean.clogs, os.environ)
    clog_openapi = clog_document(clog_routes, bool(webhooks.known))
    server = ServerState(ocean, TABLE, stream, ready_age_ms, frozenset(hosts), clog_openapi=clog_openapi)
    poker = poke_after_response(ocean, poke_ms) if poke_ms else None
    app = Starlette(
        routes=[
            *make_routes(TABLE, server, poker),
            *make_clog_routes(clog_routes, server, poker),
            webhook_route(webhooks, server, poker),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
        middleware=[Middleware(RequestMiddleware, traffic=server.traffic)],
    )
    # A redirect would repeat the path in a header, and the path may contain the id of a lease, which is a secret.
    app.router.redirect_slashes = False
    app.state.server = server
    app.state.stopping = server.stopping
    return app
