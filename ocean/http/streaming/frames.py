"""Events as the frames of Server-Sent Events, put together for sending."""

import json
import re
from collections.abc import Iterator, Sequence

from ocean.http.framework.wire import record
from ocean.state.records import Event

LINE_ENDS = re.compile(r"[\r\n]")


def frame(event: Event) -> bytes:
    """`data` has the event as it is; its type also goes into a line of its own, so that is all it may be there."""
    text = json.dumps(
        {"id": event.id} | record(event), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str
    )
    lines = f"id: {event.seq}\nevent: {LINE_ENDS.sub(' ', event.type)}\ndata: {text}\n\n"
    return lines.encode("utf-8", "replace")


class Frames:
    """The last frames made. The tail hands the same event to all its followers: it is put into words once."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._made: dict[int, tuple[Event, bytes]] = {}
        self._size = 0

    def of(self, event: Event) -> bytes:
        known = self._made.get(event.seq)
        if known is not None and known[0] is event:
            return known[1]
        made = frame(event)
        self._forget(event.seq)
        self._made[event.seq] = (event, made)
        self._size += len(made)
        while self._size > self._most:
            self._forget(next(iter(self._made)))
        return made

    def _forget(self, seq: int) -> None:
        _, made = self._made.pop(seq, (None, b""))
        self._size -= len(made)


FRAMES = Frames(1 << 20)
MOST_SENT = 1 << 16


def sendings(events: Sequence[Event]) -> Iterator[bytes]:
    """The frames of events that have gathered, many to a sending: what one costs is the same."""
    frames: list[bytes] = []
    size = 0
    for event in events:
        made = FRAMES.of(event)
        if frames and size + len(made) > MOST_SENT:
            yield b"".join(frames)
            frames, size = [], 0
        frames.append(made)
        size += len(made)
    yield b"".join(frames)


class LastChunk:
    """Events that are handed to many readers in turn, as one chunk of HTTP/1.1, made for the first of them."""

    def __init__(self) -> None:
        self._events: Sequence[Event] = ()
        self._made = b""

    def of(self, events: Sequence[Event]) -> bytes | None:
        """None if they are too many for one sending. These are not kept: there is no telling how much that would be."""
        if events is not self._events:
            parts = sendings(events)
            first = next(parts)
            if next(parts, None) is not None:
                return None
            self._events, self._made = events, b"%x\r\n%b\r\n" % (len(first), first)
        return self._made
