"""Direct writes: streams write to a connection without passing through the ASGI server.

Through ASGI a message costs a coroutine, the server's state machine and the framing of a chunk. When a thousand readers
get the same events, the bytes are the same for all of them: here the chunk is built once, and each reader costs little
more than the write itself. Under a server that has no direct writers (any but `ocean serve`) streams are sent message
by message through ASGI.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from ocean.http.streaming.frames import LastChunk
from ocean.state.records import Event

KEY = "ocean.direct_writer"
"""The writer's name in the state that the server passes to the application in the scope of every request."""
LAST_CHUNK = LastChunk()


class DirectWriter:
    """Writes to one connection, whose current response is sent in chunks."""

    __slots__ = ("_transport", "is_full")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.is_full = False

    def open(self, transport: asyncio.Transport) -> None:
        """Use this transport."""
        self._transport = transport

    def write(self, events: Sequence[Event]) -> bool:
        """Write events and return True; return False if the reader has gone or is slow, so that the caller waits."""
        transport, chunk = self._transport, LAST_CHUNK.of(events)
        if chunk is None or self.is_full or transport is None or transport.is_closing():
            return False
        transport.write(chunk)
        return True


def direct_writer_of(scope: Scope) -> DirectWriter | None:
    """Return the connection's writer; None if the server has none, and for HTTP/1.0, which has no chunks."""
    writer: DirectWriter | None = scope.get("state", {}).get(KEY)
    return writer if scope.get("http_version") == "1.1" else None


class DirectWriteProtocol(H11Protocol):
    """uvicorn's protocol; each connection passes its direct writer to the application."""

    def __init__(self, *, app_state: dict[str, Any], **others: Any) -> None:
        self._writer = DirectWriter()
        super().__init__(app_state=app_state | {KEY: self._writer}, **others)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the transport to the writer too."""
        self._writer.open(transport)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        """Stop direct writes while the transport's buffer is full."""
        self._writer.is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """Allow direct writes again."""
        self._writer.is_full = False
        super().resume_writing()
