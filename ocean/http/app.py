"""The application: every route, and around them the one way to answer and to refuse."""

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware

from ocean.clog.routes import routes_of
from ocean.http.framework.call import Served, Stream
from ocean.http.framework.clog_routes import mounted_routes
from ocean.http.framework.clog_routes_openapi import described
from ocean.http.framework.middleware import HANDLERS, Answering
from ocean.http.framework.poker import Poker
from ocean.http.framework.routing import make_routes
from ocean.http.handlers.webhooks import HOOKS, Hooks, hooks_route
from ocean.http.routes import TABLE
from ocean.http.streaming.sse import sse_response

if TYPE_CHECKING:
    from ocean.compose import Ocean

POKE_MS = 500
READY_AGE_MS = 60_000


def make_app(
    ocean: "Ocean",
    *,
    stream: Stream | None = sse_response,
    poke_ms: int = POKE_MS,
    ready_age_ms: int = READY_AGE_MS,
    hosts: Collection[str] = (),
) -> Starlette:
    """An ASGI application on an Ocean that is open, and stays open for as long as this is served.

    `stream` answers those who accept `text/event-stream`; None refuses them. After a request that changed something,
    due work is done for `poke_ms`; 0 leaves that to others. `/readyz` is red when due work is older than
    `ready_age_ms`. While there are no keys, it answers under loopback's names and those in `hosts` only. Whoever is
    about to stop the server calls `app.state.stopping.set()`: then those who wait for a run or a lease are answered.

    What the Ocean's clogs mount is served too; a route of theirs without an access policy, or a webhook without its
    secret in the environment, is refused here.
    """
    mounted = routes_of(ocean.clogs, [HOOKS, *(op.path for op in TABLE)])
    hooks = Hooks.of(ocean.clogs, os.environ)
    described_routes = described(mounted, bool(hooks.known))
    served = Served(ocean, TABLE, stream, ready_age_ms, frozenset(hosts), mounted=described_routes)
    poker = Poker(ocean, poke_ms) if poke_ms else None
    app = Starlette(
        routes=[
            *make_routes(TABLE, served, poker),
            *mounted_routes(mounted, served, poker),
            hooks_route(hooks, served, poker),
        ],
        exception_handlers=HANDLERS,
        middleware=[Middleware(Answering, traffic=served.traffic)],
    )
    # A path is spelled in one way. A redirect would also repeat a lease's id in a header.
    app.router.redirect_slashes = False
    app.state.served = served
    app.state.stopping = served.stopping
    return app
