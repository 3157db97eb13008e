"""Events as frames of Server-Sent Events, and frames joined into batches for sending."""

import json
import re
from collections.abc import Iterator, Sequence

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
