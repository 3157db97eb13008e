"""A server's log over HTTP, followed past its restarts.

Blocking, unlike the rest of the house: one connection at a time is all there is to do, and http.client knows HTTP.
"""

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import SplitResult, urlencode, urlsplit

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from ocean import Event, InvalidValue
from ocean.cli.commands.sse_parser import Frame, Frames, NoFrames
from ocean.cli.server_errors import NoOcean, NoStream, ServerAway, ServerBusy, ServerRefused

CONNECT_S = 10
SILENCE_S = 45
"""A server pings every 15 seconds; one that is silent for longer is gone, whatever the network says."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
STREAM = "text/event-stream"
LONGEST_REFUSAL = 1024 * 1024
PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Page:
    events: list[Event]
    next_cursor: int


SPELLING = ConfigDict(strict=True, alias_generator=to_camel)
# Lists, because a record itself cannot be given a configuration.
EVENTS = TypeAdapter(list[Event], config=SPELLING)
PAGES = TypeAdapter(list[Page], config=SPELLING)


@dataclass(frozen=True, slots=True)
class Feed:
    """Which feed: its path on the server, and the types that are wanted, all if none."""

    path: str
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """`after` in a request is the last cursor seen."""

    url: str
    key: str | None = None

    def __post_init__(self) -> None:
        parts = self._parts()
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise InvalidValue("OCEAN_KEY is no key: it has letters that no key has")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise InvalidValue("--url is an address only, as in http://127.0.0.1:8080; a key goes into OCEAN_KEY")

    def page(self, feed: Feed, after: int | str) -> Page:
        """Events after the cursor, and the cursor to go on from."""
        with self._asked(feed, {"Accept": "application/json"}, after=after, limit=PAGE) as answer:
            with self._reached():
                text = answer.read()
            try:
                (page,) = PAGES.validate_json(b"[%b]" % text)
            except ValueError:
                raise self._no_ocean("its answer is no page of events") from None
        return page

    @contextmanager
    def stream(self, feed: Feed, after: int) -> Iterator[Iterator[Event] | None]:
        """The feed as it grows; None if there is nothing more to come."""
        with self._asked(feed, {"Accept": STREAM, "Last-Event-ID": str(after)}) as answer:
            if answer.status == 204:
                yield None
            elif answer.headers.get_content_type() != STREAM:
                raise NoStream(f"{self.url} is no Ocean: its answer is no stream; look at the address")
            else:
                yield self._events(answer)

    def _events(self, answer: http.client.HTTPResponse) -> Iterator[Event]:
        frames = Frames()
        while some := self._read(answer):
            try:
                events = [_event(frame) for frame in frames.of(some) if frame.data is not None]
            except (ValidationError, NoFrames):
                raise self._no_ocean("what it streams are no events") from None
            yield from events

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        with self._reached():
            return answer.read1(65_536)

    @contextmanager
    def _asked(self, feed: Feed, headers: dict[str, str], **query: object) -> Iterator[http.client.HTTPResponse]:
        """An answer that is no refusal."""
        parts = self._parts()
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_S)
        asked = urlencode([*query.items(), *(("types", each) for each in feed.types)])
        if self.key:
            headers = headers | {"Authorization": f"Bearer {self.key}"}
        with closing(connection):
            with self._reached():
                connection.connect()
                connection.sock.settimeout(SILENCE_S)
                connection.request("GET", f"{parts.path.rstrip('/')}{feed.path}?{asked}", headers=headers)
                answer = connection.getresponse()
            with answer:
                self._check(answer)
                yield answer

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Around what speaks to the server, and nothing else: an error in here means that it is away."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise ServerAway(f"{self.url} does not answer ({_why(error)})") from error

    def _check(self, answer: http.client.HTTPResponse) -> None:
        if answer.status in (200, 204):
            return
        if answer.status == 429 or answer.status >= 500:
            raise ServerBusy(f"{self.url} answers {answer.status}")
        with self._reached():
            text = answer.read(LONGEST_REFUSAL)
        try:
            said = json.loads(text)
            raise ServerRefused({"error": said["error"] | {"httpStatus": answer.status}})
        except (ValueError, KeyError, TypeError):
            raise self._no_ocean(f"it answers {answer.status}") from None

    def _parts(self) -> SplitResult:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not (self.url.isascii() and self.url.isprintable() and " " not in self.url):
            raise InvalidValue(f"{self.url!r} is no server's address; it is like http://127.0.0.1:8080")
        return parts

    def _no_ocean(self, why: str) -> NoOcean:
        return NoOcean(f"{self.url} is no Ocean: {why}; look at the address")


def follow_server(
    server: Server,
    feed: Feed,
    after: int,
    say: Callable[[Event], None],
    notice: Callable[[bool, int, str], None],
    pause: Callable[[float], None],
) -> None:
    """Say every event after the cursor once, in order; ask again whenever the server goes away.

    Only one that was never met is given up. A run's feed is over when the server says so, or if it goes away after
    the run's end was told.
    """
    wait_s, has_met, is_away, has_ended = FIRST_PAUSE_S, False, False, False
    while True:
        has_told = False
        try:
            with server.stream(feed, after) as events:
                if is_away:
                    notice(False, after, "")
                has_met, is_away = True, False
                if events is None:
                    return
                for event in events:
                    if event.seq > after:
                        say(event)
                        after, wait_s, has_told = event.seq, FIRST_PAUSE_S, True
                        has_ended = has_ended or event.type in ("run.done", "run.failed", "run.deleted")
        except (ServerAway, NoStream) as error:
            if not has_met and not isinstance(error, ServerBusy):
                raise
            if has_ended and feed.path.startswith("/v1/runs/"):
                return
            if not is_away:
                notice(True, after, error.message)
            has_met, is_away = True, True
        # A stream that ends well may be the run's end, or the server's: asking again tells.
        if is_away or not has_told:
            pause(wait_s)
            wait_s = min(2 * wait_s, LONGEST_PAUSE_S)


def _event(frame: Frame) -> Event:
    (event,) = EVENTS.validate_json(f"[{frame.data}]")
    if frame.id != str(event.seq):
        raise NoFrames("the id of a frame is its event's cursor")
    return event


def _why(error: Exception) -> str:
    match error:
        case http.client.HTTPException():
            return "its answer broke off"
        case TimeoutError():
            return "it is silent"
        case OSError():
            return error.strerror or str(error)
        case _:
            return type(error).__name__
