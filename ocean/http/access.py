"""Who may use a route: decided before anything else of a request is looked at."""

from starlette.requests import Request

from ocean.http.calls import Served
from ocean.kernel.access import EVERYTHING, Access, KeyScope


async def admitted(served: Served, request: Request, scope: KeyScope | None) -> Access:
    """What the request may do, if it may use a route of this scope; None is for everybody."""
    return EVERYTHING
