"""The health checks. They need no key, so they reveal nothing about individual runs."""

from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.errors import ServerNotReady
from ocean.http.framework.responses import JsonResponse, record
from ocean.kernel.poke_sources import SourceSeen, sources_seen, why_due_work_waits


@dataclass(frozen=True, slots=True)
class Health:
    """The process is running."""

    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class Readiness:
    """How long the oldest due run of this instance has waited, and which sources have poked this process."""

    status: Literal["ready"]
    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    limit_ms: int
    sources: tuple[SourceSeen, ...]


async def alive(call: HandlerCall) -> Response:
    """Respond as long as the process runs."""
    return JsonResponse(record(Health()))


async def started(call: HandlerCall) -> Response:
    """Respond once the database is open: an application is only created for an open Ocean."""
    return JsonResponse(record(Health()))


async def ready(call: HandlerCall) -> Response:
    """Respond with 503 if a run has been due for too long."""
    ocean, limit = call.server.ocean, call.server.ready_age_ms
    agenda = await ocean.agenda()
    age, now = agenda.oldest_due_age_ms, ocean.clock.now()
    sources = sources_seen(ocean.observed.pokes, now, age, limit)
    if age > limit:
        raise ServerNotReady(
            f"the oldest due run has waited for {age} ms, the limit is {limit}; {why_due_work_waits(sources, now)}",
            due_now=agenda.due_now,
            oldest_due_age_ms=age,
            limit_ms=limit,
            sources=record(sources),
        )
    return JsonResponse(record(Readiness("ready", agenda.due_now, agenda.next_wake_at, age, limit, sources)))
