"""Feeds: a page of the log as JSON, or for clients that accept it a stream of the log as it grows."""

import re
from dataclasses import dataclass
from inspect import isawaitable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.responses import Response

from ocean.http.framework.authorization import authenticate
from ocean.http.framework.call import HandlerCall
from ocean.http.framework.errors import InvalidQuery, NotAcceptable
from ocean.http.framework.parsing import INTEGER, Limit, Query
from ocean.http.framework.responses import JsonResponse, record
from ocean.kernel.arguments import feed_filter
from ocean.state.errors import OceanError, StoreBusy
from ocean.state.records import Event

STREAM = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
NEVER = re.compile(r"\bq=0(\.0*)?(;|$)")
"""A weight of 0 means that the client does not accept the type."""
LATEST = "latest"


def _cursor_or_latest(value: Any) -> Any:
    if value == LATEST:
        return value
    if not INTEGER.fullmatch(value) or int(value) < 0:
        raise ValueError(f"must be a cursor, which is an event's seq in decimal digits, or {LATEST}")
    return int(value)


Cursor = Annotated[
    int | str,
    BeforeValidator(_cursor_or_latest),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": LATEST}]}),
]


class FeedQuery(Query):
    """`after` is the last cursor already seen, an event's `seq`; `latest` selects only future events."""

    after: Cursor = 0
    limit: Limit = 100
    types: list[str] = Field(default_factory=list)
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Logged(Event):
    """An event of the log with its id."""

    id: str = ""


@dataclass(frozen=True, slots=True)
class Events:
    """Continue after `nextCursor`. A first event of type `reset` means that retention has removed some before it."""

    events: tuple[Logged, ...]
    next_cursor: int


async def of_run(call: HandlerCall) -> Response:
    """Respond with the events of a run."""
    run_id = call.path("run_id")
    return await _feed(call, run_id, await call.guard.session_of_events(run_id))


async def of_session(call: HandlerCall) -> Response:
    """Respond with the events of a session's runs."""
    return await _feed(call, session_id=call.path("session_id"))


async def of_clog(call: HandlerCall) -> Response:
    """Respond with the events of a clog's runs."""
    return await _feed(call, clog_id=call.path("clog_id"))


async def of_all(call: HandlerCall) -> Response:
    """Respond with all events."""
    return await _feed(call)


async def _feed(
    call: HandlerCall, run_id: str | None = None, session_id: str | None = None, clog_id: str | None = None
) -> Response:
    query: FeedQuery = call.query
    if _wants_stream(call):
        return await _streamed(call, run_id, session_id, clog_id)
    after = await _after(call)
    events = await call.ocean.read_events(
        run_id,
        session_id=session_id,
        clog_id=clog_id,
        types=query.types,
        correlation_id=query.correlation_id,
        after=after,
        limit=query.limit,
    )
    page: dict[str, Any] = {
        "events": [event_json(event) for event in events],
        "nextCursor": events[-1].seq if events else after,
    }
    return JsonResponse(page, headers={"Vary": "Accept"})


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON, with its id."""
    content: dict[str, Any] = record(event)
    return content | {"id": event.id}


def _wants_stream(call: HandlerCall) -> bool:
    accepted = ",".join(call.request.headers.getlist("accept")).lower().split(",")
    kinds = (each.replace(" ", "").partition(";") for each in accepted)
    return any(kind == STREAM and not NEVER.search(how) for kind, _, how in kinds)


async def _streamed(call: HandlerCall, run_id: str | None, session_id: str | None, clog_id: str | None) -> Response:
    query: FeedQuery = call.query
    if call.server.stream is None:
        raise NotAcceptable(
            "Accept must not be text/event-stream: this server does not stream; leave it out to read pages"
        )
    where = feed_filter(run_id, session_id, clog_id, query.types, query.correlation_id)

    async def still_allowed() -> bool:
        try:
            access = await authenticate(call.server, call.request)
        except StoreBusy:
            return True  # The next ping checks again.
        except OceanError:
            return False
        return access == call.access

    response = call.server.stream(call.ocean, call.request, where, await _cursor(call), still_allowed)
    return await response if isawaitable(response) else response


async def _cursor(call: HandlerCall) -> int:
    """Return the cursor to stream after. A browser that reconnects sends its last id, which is later than `after`."""
    given = call.request.headers.get(LAST_EVENT_ID)
    if not given:
        return await _after(call)
    if not INTEGER.fullmatch(given) or int(given) < 0:
        problem = {"field": LAST_EVENT_ID, "problem": "must be a cursor: an event's seq in decimal digits"}
        raise InvalidQuery(": ".join(problem.values()), fields=[problem])
    return int(given)


async def _after(call: HandlerCall) -> int:
    after: int | str = call.query.after
    return await call.ocean.last_cursor() if isinstance(after, str) else after
