"""Lines: connections that a stream may write to past its server.

ASGI's way is long for one message: a coroutine, the server's states, a chunk's frame. What a thousand readers are told
at once is the same bytes for all of them, so the frame is made once, and a reader costs little more than the writing.
Under a server that has no lines (any but `ocean serve`) streams are sent message by message, as ASGI has it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from ocean.http.streaming.frames import LastChunk
from ocean.state.records import Event

KEY = "ocean.line"
"""Among what the server keeps for an application, which it shows in the scope of every request."""
LAST_CHUNK = LastChunk()


class Line:
    """One connection, whose answer of the moment is being sent in chunks."""

    __slots__ = ("_transport", "is_full")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.is_full = False

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def tell(self, events: Sequence[Event]) -> bool:
        """Whether they are on their way. They are not if the reader is gone, or slow: then the server is to wait."""
        transport, chunk = self._transport, LAST_CHUNK.of(events)
        if chunk is None or self.is_full or transport is None or transport.is_closing():
            return False
        transport.write(chunk)
        return True


def line_of(scope: Scope) -> Line | None:
    """None where there is none, and for HTTP/1.0, which knows no chunks."""
    line: Line | None = scope.get("state", {}).get(KEY)
    return line if scope.get("http_version") == "1.1" else None


class LineProtocol(H11Protocol):
    """uvicorn's protocol, each of whose connections shows its line to those who answer its requests."""

    def __init__(self, *, app_state: dict[str, Any], **others: Any) -> None:
        self._line = Line()
        super().__init__(app_state=app_state | {KEY: self._line}, **others)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._line.open(transport)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        self._line.is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._line.is_full = False
        super().resume_writing()
