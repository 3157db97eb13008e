"""One request as a handler sees it: checked, and with the Ocean that it asks."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ocean.access.guard import Guard
from ocean.http.framework.shutdown import Stopping
from ocean.http.framework.traffic import Traffic
from ocean.state.access import Access
from ocean.state.filters import FeedFilter
from ocean.state.records import Caller

if TYPE_CHECKING:
    from ocean.compose import Ocean
    from ocean.http.framework.operation import Op

StillMay = Callable[[], Awaitable[bool]]
"""Whether the key that opened a stream is still good for it."""
Stream = Callable[["Ocean", Request, FeedFilter, int, StillMay], Response | Awaitable[Response]]
"""A feed after a cursor, as `text/event-stream`."""


@dataclass(frozen=True, slots=True)
class Served:
    """What every handler has. `stream` is None where feeds are not streamed."""

    ocean: "Ocean"
    table: tuple["Op", ...]
    stream: Stream | None = None
    ready_age_ms: int = 60_000
    hosts: frozenset[str] = frozenset()
    """The names, besides loopback's, under which a house without keys is asked."""
    stopping: Stopping = field(default_factory=Stopping)
    mounted: Mapping[str, Any] = field(default_factory=dict)
    """What clogs have mounted, as the OpenAPI document says it."""
    traffic: Traffic = field(default_factory=Traffic)
    pages: dict[str, bytes] = field(default_factory=dict)
    """What the API says about itself, once it has been asked."""


@dataclass(frozen=True, slots=True)
class Call:
    """`body` and `query` are of the models that the route names; `access` is what its sender may do."""

    served: Served
    request: Request
    access: Access
    body: Any = None
    query: Any = None
    request_key: str | None = None

    @property
    def ocean(self) -> "Ocean":
        return self.served.ocean

    @property
    def guard(self) -> Guard:
        return Guard(self.served.ocean, self.access)

    @property
    def actor(self) -> str | None:
        return self.access.actor

    @property
    def caller(self) -> Caller:
        return self.access.caller

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])
