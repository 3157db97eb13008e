"""One request as a handler sees it: checked, and with the Ocean that it asks."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ocean.http.traffic import Traffic
from ocean.kernel.filters import FeedFilter
from ocean.kernel.records import Caller

if TYPE_CHECKING:
    from ocean.compose import Ocean
    from ocean.http.table import Op

Stream = Callable[["Ocean", Request, FeedFilter, int], Response | Awaitable[Response]]
"""A feed after a cursor, as `text/event-stream`."""


@dataclass(frozen=True, slots=True)
class Served:
    """What every handler has. `stream` is None where feeds are not streamed."""

    ocean: "Ocean"
    table: tuple["Op", ...]
    stream: Stream | None = None
    ready_age_ms: int = 60_000
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True, slots=True)
class Call:
    """`body` and `query` are of the models that the route names; `actor` is whom the request speaks for."""

    served: Served
    request: Request
    body: Any = None
    query: Any = None
    request_key: str | None = None
    actor: str | None = None

    @property
    def ocean(self) -> "Ocean":
        return self.served.ocean

    @property
    def caller(self) -> Caller:
        return Caller(self.actor)

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])
