"""The application: every route, and around them the one way to answer and to refuse."""

from starlette.applications import Starlette
from starlette.middleware import Middleware

from ocean.http.answering import HANDLERS, Answering
from ocean.http.leases import lease_routes
from ocean.kernel.kernel import Kernel


def make_app(ocean: Kernel) -> Starlette:
    """An ASGI application on an Ocean that is open, and stays open for as long as this is served."""
    app = Starlette(
        routes=[*lease_routes(ocean)],
        exception_handlers=HANDLERS,
        middleware=[Middleware(Answering)],
    )
    # A path is spelled in one way. A redirect would also repeat a lease's id in a header.
    app.router.redirect_slashes = False
    return app
