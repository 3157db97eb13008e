"""What a handler receives: the state that all requests of a server share, and one checked request."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ocean.access.guard import Guard
from ocean.http.framework.middleware import Traffic
from ocean.state.filters import FeedFilter
from ocean.state.records import Access, Caller

if TYPE_CHECKING:
    from ocean.compose import Ocean
    from ocean.http.framework.routing import Op

StillAllowed = Callable[[], Awaitable[bool]]
"""Returns whether the key that opened a stream may still read it."""
logger = logging.getLogger("ocean.http")

Poker = Callable[[], Awaitable[None]]
"""Advances due runs after a response has been sent."""
StreamFeed = Callable[["Ocean", Request, FeedFilter, int, StillAllowed], Response | Awaitable[Response]]
"""Returns the response that streams a feed after a cursor as `text/event-stream`."""


class Stopping:
    """Ends the waits of open requests when the server stops; `app.state.stopping` of the application."""

    def __init__(self) -> None:
        self.is_set = False
        self._callbacks: dict[object, Callable[[], object]] = {}

    def set(self) -> None:
        """Mark the server as stopping and call every registered callback."""
        self.is_set = True
        for callback in tuple(self._callbacks.values()):
            callback()

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` if the server stops while the block is running."""
        mark = object()
        self._callbacks[mark] = callback
        try:
            yield
        finally:
            del self._callbacks[mark]


@dataclass(frozen=True, slots=True)
class ServerState:
    """What all requests of an application share. `stream` is None where feeds are not streamed."""

    ocean: "Ocean"
    table: tuple["Op", ...]
    stream: StreamFeed | None = None
    ready_age_ms: int = 60_000
    hosts: frozenset[str] = frozenset()
    """Host names, in addition to the loopback names, that a server without keys accepts."""
    stopping: Stopping = field(default_factory=Stopping)
    clog_openapi: Mapping[str, Any] = field(default_factory=dict)
    """The OpenAPI paths and schemas of the routes that clogs mount."""
    traffic: Traffic = field(default_factory=Traffic)
    pages: dict[str, bytes] = field(default_factory=dict)
    """The rendered OpenAPI document and documentation page, after the first request for them."""


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One request. `body` and `query` are instances of the route's models; `access` is what the sender may do."""

    server: ServerState
    request: Request
    access: Access
    body: Any = None
    query: Any = None
    request_key: str | None = None

    @property
    def ocean(self) -> "Ocean":
        """The Ocean that this server runs on."""
        return self.server.ocean

    @property
    def guard(self) -> Guard:
        """The checks of what the sender may do."""
        return Guard(self.server.ocean, self.access)

    @property
    def actor(self) -> str | None:
        """The sender's name for the log; None without a key."""
        return self.access.actor

    @property
    def caller(self) -> Caller:
        """The sender as the methods of clogs see it."""
        return self.access.caller

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return str(self.request.path_params[name])


def poke_after_response(ocean: "Ocean", budget_ms: int) -> Poker:
    """Return the poke that follows a response. It logs its errors, since the response has been sent."""

    async def poke() -> None:
        try:
            await ocean.coordinator.poke_everything(budget_ms, "request")
        except Exception:
            logger.exception("the poke after a request failed")

    return poke
