"""The event log of a server over HTTP, followed across restarts of the server.

Blocking, unlike the rest of Ocean: there is one connection at a time, and http.client is enough for that.
"""

import codecs
import http.client
import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import SplitResult, urlencode, urlsplit

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from ocean import Event, InvalidValue
from ocean.cli.server_errors import NoOcean, NoStream, ServerAway, ServerBusy, ServerRefused

CONNECT_S = 10
SILENCE_S = 45
"""A server pings every 15 seconds. One that is silent for longer is treated as away, even if the connection is open."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
STREAM = "text/event-stream"
MOST_ERROR_BYTES = 1024 * 1024
PAGE = 1_000
LONGEST_FRAME = 16 * 1024 * 1024
"""In characters, of a frame that is not complete yet. An event is far shorter."""


class BadStream(ValueError):
    """The bytes are not a stream of Ocean's events."""


@dataclass(frozen=True, slots=True)
class SseFrame:
    """A frame of Server-Sent Events. `data` is None in a frame without an event: a ping, or the start of a stream."""

    id: str | None
    data: str | None


class SseParser:
    """Splits bytes into frames, wherever the bytes are cut. A frame that is incomplete at the end is dropped."""

    def __init__(self) -> None:
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(), translate=True)
        self._rest = ""

    def feed(self, some: bytes) -> Iterator[SseFrame]:
        """Yield the frames that these bytes complete."""
        try:
            self._rest += self._decoder.decode(some)
        except UnicodeDecodeError:
            raise BadStream("the stream must be UTF-8") from None
        *whole, self._rest = self._rest.split("\n\n")
        if len(self._rest) > LONGEST_FRAME:
            raise BadStream(f"a frame must have at most {LONGEST_FRAME} characters")
        for block in whole:
            yield _frame(block)


def _frame(block: str) -> SseFrame:
    """Parse lines of a name, a colon, an optional space and a value. A line that begins with a colon is a comment."""
    found: dict[str, list[str]] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        found.setdefault(name, []).append(value.removeprefix(" "))
    return SseFrame(found["id"][-1] if "id" in found else None, "\n".join(found["data"]) if "data" in found else None)


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events, and the cursor after them."""

    events: list[Event]
    next_cursor: int


CAMEL_CASE = ConfigDict(strict=True, alias_generator=to_camel)
# Adapters of lists, because an adapter of a dataclass itself cannot be given a configuration.
EVENTS = TypeAdapter(list[Event], config=CAMEL_CASE)
PAGES = TypeAdapter(list[LogPage], config=CAMEL_CASE)


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed: its path on the server, and the event types that are wanted (all if empty)."""

    path: str
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A client of one server. `after` in its methods is the last cursor seen."""

    url: str
    key: str | None = None

    def __post_init__(self) -> None:
        parts = self._parts()
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise InvalidValue("OCEAN_KEY must be an API key: printable ASCII without spaces")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise InvalidValue("--url must be an address only, such as http://127.0.0.1:8080; put the key in OCEAN_KEY")

    def page(self, feed: Feed, after: int | str) -> LogPage:
        """Return events after the cursor, and the next cursor."""
        with self._get(feed, {"Accept": "application/json"}, after=after, limit=PAGE) as response:
            with self._errors_as_away():
                text = response.read()
            try:
                (page,) = PAGES.validate_json(b"[%b]" % text)
            except ValueError:
                raise self._no_ocean("its response is not a page of events") from None
        return page

    @contextmanager
    def stream(self, feed: Feed, after: int) -> Iterator[Iterator[Event] | None]:
        """Yield the feed as it grows, or None if the feed has ended."""
        with self._get(feed, {"Accept": STREAM, "Last-Event-ID": str(after)}) as response:
            if response.status == 204:
                yield None
            elif response.headers.get_content_type() != STREAM:
                raise NoStream(f"{self.url} is not an Ocean server: its response is not a stream; check the address")
            else:
                yield self._events(response)

    def _events(self, response: http.client.HTTPResponse) -> Iterator[Event]:
        parser = SseParser()
        while some := self._read(response):
            try:
                events = [_event(frame) for frame in parser.feed(some) if frame.data is not None]
            except (ValidationError, BadStream):
                raise self._no_ocean("its stream does not contain events") from None
            yield from events

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        with self._errors_as_away():
            return response.read1(65_536)

    @contextmanager
    def _get(self, feed: Feed, headers: dict[str, str], **query: object) -> Iterator[http.client.HTTPResponse]:
        """Yield the response to a request, unless it is an error."""
        parts = self._parts()
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_S)
        encoded = urlencode([*query.items(), *(("types", each) for each in feed.types)])
        if self.key:
            headers = headers | {"Authorization": f"Bearer {self.key}"}
        with closing(connection):
            with self._errors_as_away():
                connection.connect()
                connection.sock.settimeout(SILENCE_S)
                connection.request("GET", f"{parts.path.rstrip('/')}{feed.path}?{encoded}", headers=headers)
                response = connection.getresponse()
            with response:
                self._check(response)
                yield response

    @contextmanager
    def _errors_as_away(self) -> Iterator[None]:
        """Raise `ServerAway` for network errors. Only what reads from or writes to the server may be inside."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise ServerAway(f"{self.url} does not respond ({_why(error)})") from error

    def _check(self, response: http.client.HTTPResponse) -> None:
        if response.status in (200, 204):
            return
        if response.status == 429 or response.status >= 500:
            raise ServerBusy(f"{self.url} responds with status {response.status}")
        with self._errors_as_away():
            text = response.read(MOST_ERROR_BYTES)
        try:
            body = json.loads(text)
            raise ServerRefused({"error": body["error"] | {"httpStatus": response.status}})
        except (ValueError, KeyError, TypeError):
            raise self._no_ocean(f"it responds with status {response.status}") from None

    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not (self.url.isascii() and self.url.isprintable() and " " not in self.url):
            raise InvalidValue(
                f"--url must be the address of a server, such as http://127.0.0.1:8080, got {self.url!r}"
            )
        return parts

    def _no_ocean(self, why: str) -> NoOcean:
        return NoOcean(f"{self.url} is not an Ocean server: {why}; check the address")


def follow_server(
    server: RemoteServer,
    feed: Feed,
    after: int,
    on_event: Callable[[Event], None],
    on_change: Callable[[bool, int, str], None],
    pause: Callable[[float], None],
) -> None:
    """Call `on_event` with every event after the cursor once, in order; reconnect whenever the server goes away.

    `on_change(is_away, after, why)` is called when the server goes away and when it is back. A server that could never
    be reached is an error. A run's feed is over when the server ends it, or if the server goes away after the run has
    ended.
    """
    wait_s, was_reached, is_away, has_ended = FIRST_PAUSE_S, False, False, False
    while True:
        has_events = False
        try:
            with server.stream(feed, after) as events:
                if is_away:
                    on_change(False, after, "")
                was_reached, is_away = True, False
                if events is None:
                    return
                for event in events:
                    if event.seq > after:
                        on_event(event)
                        after, wait_s, has_events = event.seq, FIRST_PAUSE_S, True
                        has_ended = has_ended or event.type in ("run.done", "run.failed", "run.deleted")
        except (ServerAway, NoStream) as error:
            if not was_reached and not isinstance(error, ServerBusy):
                raise
            if has_ended and feed.path.startswith("/v1/runs/"):
                return
            if not is_away:
                on_change(True, after, error.message)
            was_reached, is_away = True, True
        # A stream ends when the run has ended or when the server stops. The next request shows which.
        if is_away or not has_events:
            pause(wait_s)
            wait_s = min(2 * wait_s, LONGEST_PAUSE_S)


def _event(frame: SseFrame) -> Event:
    (event,) = EVENTS.validate_json(f"[{frame.data}]")
    if frame.id != str(event.seq):
        raise BadStream("the id of a frame must be the cursor of its event")
    return event


def _why(error: OSError | http.client.HTTPException) -> str:
    match error:
        case http.client.HTTPException():
            return "its response broke off"
        case TimeoutError():
            return "it is silent"
        case OSError():
            return error.strerror or str(error)
        case _:
            assert_never(error)
