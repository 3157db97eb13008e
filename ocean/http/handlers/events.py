"""Feeds: a page of the log as JSON, or the log as it grows for those who accept an event stream."""

import re
from dataclasses import dataclass
from inspect import isawaitable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.responses import Response

from ocean.http.framework.authorization import identified
from ocean.http.framework.call import Call
from ocean.http.framework.errors import InvalidQuery, NotAcceptable
from ocean.http.framework.query_strings import WHOLE, Limit, Query
from ocean.http.framework.wire import Answer, record
from ocean.kernel.arguments import feed_filter
from ocean.state.errors import OceanError, StoreBusy
from ocean.state.records import Event

STREAM = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
NEVER = re.compile(r"\bq=0(\.0*)?(;|$)")
"""What is named with a weight of nothing is refused, not accepted."""
LATEST = "latest"


def _cursor_or_latest(value: Any) -> Any:
    if value == LATEST:
        return value
    if not WHOLE.fullmatch(value) or int(value) < 0:
        raise ValueError(f"is a cursor, an event's seq in digits, or {LATEST}")
    return int(value)


Cursor = Annotated[
    int | str,
    BeforeValidator(_cursor_or_latest),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": LATEST}]}),
]


class FeedQuery(Query):
    """`after` is the last cursor already seen: an event's `seq`; or `latest`, for what is still to come."""

    after: Cursor = 0
    limit: Limit = 100
    types: list[str] = Field(default_factory=list)
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Logged(Event):
    id: str = ""


@dataclass(frozen=True, slots=True)
class Events:
    """Go on after `nextCursor`. A first event of type `reset` says that retention has removed some before it."""

    events: tuple[Logged, ...]
    next_cursor: int


async def of_run(call: Call) -> Response:
    run_id = call.path("run_id")
    return await _feed(call, run_id, await call.guard.session_of_events(run_id))


async def of_session(call: Call) -> Response:
    return await _feed(call, session_id=call.path("session_id"))


async def of_clog(call: Call) -> Response:
    return await _feed(call, clog_id=call.path("clog_id"))


async def of_all(call: Call) -> Response:
    return await _feed(call)


async def _feed(
    call: Call, run_id: str | None = None, session_id: str | None = None, clog_id: str | None = None
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
    said: dict[str, Any] = {
        "events": [event_json(event) for event in events],
        "nextCursor": events[-1].seq if events else after,
    }
    return Answer(said, headers={"Vary": "Accept"})


def event_json(event: Event) -> dict[str, Any]:
    said: dict[str, Any] = record(event)
    return said | {"id": event.id}


def _wants_stream(call: Call) -> bool:
    accepted = ",".join(call.request.headers.getlist("accept")).lower().split(",")
    kinds = (each.replace(" ", "").partition(";") for each in accepted)
    return any(kind == STREAM and not NEVER.search(how) for kind, _, how in kinds)


async def _streamed(call: Call, run_id: str | None, session_id: str | None, clog_id: str | None) -> Response:
    query: FeedQuery = call.query
    if call.served.stream is None:
        raise NotAcceptable("this server does not stream; leave text/event-stream out of Accept and read pages")
    where = feed_filter(run_id, session_id, clog_id, query.types, query.correlation_id)

    async def still_may() -> bool:
        try:
            access = await identified(call.served, call.request)
        except StoreBusy:
            return True  # Asked again with the next ping.
        except OceanError:
            return False
        return access == call.access

    made = call.served.stream(call.ocean, call.request, where, await _cursor(call), still_may)
    return await made if isawaitable(made) else made


async def _cursor(call: Call) -> int:
    """A browser that reconnects says the last id it had, and that is later than what its address says."""
    given = call.request.headers.get(LAST_EVENT_ID)
    if not given:
        return await _after(call)
    if not WHOLE.fullmatch(given) or int(given) < 0:
        problem = {"field": LAST_EVENT_ID, "problem": "is a cursor: an event's seq, in digits"}
        raise InvalidQuery(": ".join(problem.values()), fields=[problem])
    return int(given)


async def _after(call: Call) -> int:
    after: int | str = call.query.after
    return await call.ocean.last_cursor() if isinstance(after, str) else after
