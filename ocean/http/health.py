"""Whether this process lives, and whether it keeps up. Open to all, so it tells nothing of anybody's runs."""

from dataclasses import dataclass
from typing import Literal

from starlette.responses import Response

from ocean.http.calls import Call
from ocean.http.errors import NotReady
from ocean.http.wire import Answer, record


@dataclass(frozen=True, slots=True)
class Health:
    status: Literal["ok"] = "ok"


@dataclass(frozen=True, slots=True)
class Readiness:
    """How old the oldest due work of this instance is."""

    status: Literal["ready"]
    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    limit_ms: int


async def alive(call: Call) -> Response:
    return Answer(record(Health()))


async def started(call: Call) -> Response:
    """An application is made on an Ocean that is open."""
    return Answer(record(Health()))


async def ready(call: Call) -> Response:
    agenda = await call.ocean.agenda()
    age, limit = agenda.oldest_due_age_ms, call.served.ready_age_ms
    if age > limit:
        raise NotReady(
            f"the oldest due run has waited for {age} ms, over {limit}: is there a ticker, cron or client that pokes?",
            due_now=agenda.due_now,
            oldest_due_age_ms=age,
            limit_ms=limit,
        )
    return Answer(record(Readiness("ready", agenda.due_now, agenda.next_wake_at, age, limit)))
