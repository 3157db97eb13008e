"""Leases: `POST /v1/leases`, and renewing and completing one by its secret id."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from pydantic import Field, model_validator
from starlette.responses import Response

from ocean.http.framework.bodies import Body, Whole
from ocean.http.framework.call import Call
from ocean.http.framework.disconnect import while_listening
from ocean.http.framework.wire import Answer, camel, record
from ocean.http.handlers.outcome_bodies import OutcomeBody
from ocean.kernel.arguments import CLEAR, UNSET
from ocean.kernel.kernel import Kernel
from ocean.kernel.verbs.leases import DEFAULT_LEASE_MS, LONGEST_LEASE_MS, LONGEST_WAIT_MS, SHORTEST_LEASE_MS, Lease
from ocean.state.errors import OceanError
from ocean.state.records import Input, RunStatus
from ocean.state.values import MAX_BYTES

COMPLETION_BYTES = 4 * MAX_BYTES
"""An output, a row and events: each may be as large as a value can be."""
OF_THE_RUN = (
    "run_id",
    "session_id",
    "clog_id",
    "queue",
    "attempt",
    "max_attempts",
    "priority",
    "deadline_at",
    "attributes",
    "parent_run_id",
    "correlation_id",
)
"""What a worker is told of the run whose tick it does."""

LeaseMs = Annotated[Whole, Field(ge=SHORTEST_LEASE_MS, le=LONGEST_LEASE_MS)]


class ClaimBody(Body):
    clog_id: str
    worker_id: str
    lease_ms: LeaseMs = DEFAULT_LEASE_MS
    queues: list[str] | None = Field(default=None, min_length=1)
    limit: Annotated[Whole, Field(ge=1, le=1_000)] = 1
    wait_ms: Annotated[Whole, Field(ge=0, le=LONGEST_WAIT_MS)] = 0


class EventBody(Body):
    type: str
    payload: Any = None


class RenewBody(Body):
    lease_ms: LeaseMs | None = None
    events: list[EventBody] = Field(default_factory=list)


class CompleteBody(Body):
    """`row` replaces the run's row, also by null; `clearRow` removes it; with neither it stays as it is."""

    outcome: OutcomeBody = Field(discriminator="type")
    events: list[EventBody] = Field(default_factory=list)
    row: Any = None
    clear_row: bool = False
    row_version: Annotated[Whole, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def says_one_thing_of_the_row(self) -> "CompleteBody":
        if self.clear_row and "row" in self.model_fields_set:
            raise ValueError("row writes the row and clearRow removes it; give one of them")
        return self

    def written_row(self) -> Any:
        return CLEAR if self.clear_row else self.row if "row" in self.model_fields_set else UNSET


def lease_json(lease: Lease) -> dict[str, Any]:
    """`leaseId` comes first, so that a worker without a JSON parser finds it."""
    said: dict[str, Any] = record(lease)
    del said["run"]
    return said | {camel(name): record(getattr(lease.run, name)) for name in OF_THE_RUN} | {"input": lease.input}


@dataclass(frozen=True, slots=True)
class Leased:
    """One tick to do, until `expiresAt`. `leaseId` is the secret to renew and complete it by; it comes first."""

    lease_id: str
    worker_id: str
    expires_at: int
    tick: int
    call: int
    reason: str
    inputs: tuple[Input, ...]
    row: Any
    row_version: int
    idempotency_key: str
    run_id: str
    session_id: str
    clog_id: str
    queue: str | None
    attempt: int
    max_attempts: int | None
    priority: int
    deadline_at: int | None
    attributes: dict[str, Any]
    parent_run_id: str | None
    correlation_id: str
    input: Any


@dataclass(frozen=True, slots=True)
class Leases:
    leases: tuple[Leased, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """When the lease lapses now."""

    expires_at: int


@dataclass(frozen=True, slots=True)
class Released:
    """What the run is now."""

    status: RunStatus


async def claim(call: Call) -> Response:
    body: ClaimBody = call.body
    leases: list[Lease] = []
    await call.guard.check_clog(body.clog_id, "work")

    async def work() -> None:
        leases.extend(
            await call.ocean.claim_work(
                body.clog_id,
                worker_id=body.worker_id,
                lease_ms=body.lease_ms,
                queues=body.queues,
                limit=body.limit,
                wait_ms=body.wait_ms,
            )
        )

    try:
        await while_listening(call.request, call.served.stopping, work)
    except BaseException:
        await _return_unheard(call.ocean, leases)
        raise
    return Answer({"leases": [lease_json(lease) for lease in leases]})


async def renew(call: Call) -> Response:
    body: RenewBody = call.body
    expires_at = await call.ocean.renew_work(
        call.path("lease_id"), lease_ms=body.lease_ms, events=_events(body.events), request_key=call.request_key
    )
    return Answer(record(Renewed(expires_at)))


async def complete(call: Call) -> Response:
    body: CompleteBody = call.body
    done = await call.ocean.complete_work(
        call.path("lease_id"),
        body.outcome.outcome(),
        events=_events(body.events),
        row=body.written_row(),
        row_version=body.row_version,
    )
    return Answer(record(done))


async def release(call: Call) -> Response:
    status = await call.ocean.release_work(call.path("lease_id"), request_key=call.request_key)
    return Answer(record(Released(status)))


async def _return_unheard(ocean: Kernel, leases: list[Lease]) -> None:
    """Leased while the worker went away, which therefore knows no id: others need not wait for it to lapse."""
    with anyio.CancelScope(shield=True):
        for lease in leases:
            with suppress(OceanError):
                await ocean.release_work(lease.lease_id)


def _events(events: list[EventBody]) -> list[tuple[str, Any]]:
    return [(event.type, event.payload) for event in events]
