"""Whether this process lives, and whether it keeps up. Open to all, so it tells nothing of anybody's runs."""

from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from ocean.http.framework.call import Call
from ocean.http.framework.errors import NotReady
from ocean.http.framework.wire import Answer, record
from ocean.kernel.poke_sources import SourceSeen, sources_seen, why_due_work_waits


@dataclass(frozen=True, slots=True)
class Health:
    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class Readiness:
    """How old the oldest due work of this instance is, and who has poked this process."""

    status: Literal["ready"]
    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    limit_ms: int
    sources: tuple[SourceSeen, ...]


async def alive(call: Call) -> Response:
    return Answer(record(Health()))


async def started(call: Call) -> Response:
    """An application is made on an Ocean that is open."""
    return Answer(record(Health()))


async def ready(call: Call) -> Response:
    ocean, limit = call.served.ocean, call.served.ready_age_ms
    agenda = await ocean.agenda()
    age, now = agenda.oldest_due_age_ms, ocean.clock.now()
    sources = sources_seen(ocean.observed.pokes, now, age, limit)
    if age > limit:
        raise NotReady(
            f"the oldest due run has waited for {age} ms, over {limit}; {why_due_work_waits(sources, now)}",
            due_now=agenda.due_now,
            oldest_due_age_ms=age,
            limit_ms=limit,
            sources=record(sources),
        )
    return Answer(record(Readiness("ready", agenda.due_now, agenda.next_wake_at, age, limit, sources)))
