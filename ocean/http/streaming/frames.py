"""Events as frames of Server-Sent Events: joined into batches for sending, or written straight to a connection."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from ocean.http.framework.responses import record
from ocean.state.records import Event

LINE_ENDS = re.compile(r"[\r\n]")


def frame(event: Event) -> bytes:
    """Return an event as a frame. Line breaks in the type are replaced: it is also sent as a line of its own."""
    text = json.dumps(
        {"id": event.id} | record(event), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
    )
    lines = f"id: {event.seq}\nevent: {LINE_ENDS.sub(' ', event.type)}\ndata: {text}\n\n"
    return lines.encode("utf-8", "replace")


class FrameCache:
    """The most recent frames. The tail passes the same event to all its followers, so it is encoded only once."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._frames: dict[int, tuple[Event, bytes]] = {}
        self._size = 0

    def of(self, event: Event) -> bytes:
        """Return an event's frame."""
        known = self._frames.get(event.seq)
        if known is not None and known[0] is event:
            return known[1]
        encoded = frame(event)
        self._forget(event.seq)
        self._frames[event.seq] = (event, encoded)
        self._size += len(encoded)
        while self._size > self._most:
            self._forget(next(iter(self._frames)))
        return encoded

    def _forget(self, seq: int) -> None:
        _, encoded = self._frames.pop(seq, (None, b""))
        self._size -= len(encoded)


FRAMES = FrameCache(1 << 20)
BATCH_BYTES = 1 << 16


def batches(events: Sequence[Event]) -> Iterator[bytes]:
    """Yield the frames of events, joined up to `BATCH_BYTES`: a send costs the same for one frame as for many."""
    frames: list[bytes] = []
    size = 0
    for event in events:
        encoded = FRAMES.of(event)
        if frames and size + len(encoded) > BATCH_BYTES:
            yield b"".join(frames)
            frames, size = [], 0
        frames.append(encoded)
        size += len(encoded)
    yield b"".join(frames)


class LastChunk:
    """The last events as one HTTP/1.1 chunk: built for the first reader and reused for the others."""

    def __init__(self) -> None:
        self._events: Sequence[Event] = ()
        self._chunk = b""

    def of(self, events: Sequence[Event]) -> bytes | None:
        """Return the events' chunk; None, and nothing is kept, if they are too large for one batch."""
        if events is not self._events:
            parts = batches(events)
            first = next(parts)
            if next(parts, None) is not None:
                return None
            self._events, self._chunk = events, b"%x\r\n%b\r\n" % (len(first), first)
        return self._chunk


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
