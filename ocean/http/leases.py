"""Leases: `POST /v1/leases`, and renewing and completing one by its secret id."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import anyio
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ocean.http.bodies import Body, Whole, read_body
from ocean.http.outcomes import OutcomeBody
from ocean.http.waiting import while_listening
from ocean.http.wire import Answer, camel, record
from ocean.kernel.arguments import CLEAR, UNSET
from ocean.kernel.errors import OceanError
from ocean.kernel.kernel import DEFAULT_LEASE_MS, Kernel
from ocean.kernel.leasing import LONGEST_LEASE_MS, LONGEST_WAIT_MS, SHORTEST_LEASE_MS, Lease
from ocean.kernel.values import MAX_BYTES

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


def lease_routes(ocean: Kernel) -> Sequence[Route]:
    async def claim(request: Request) -> Response:
        body = await read_body(request, ClaimBody)
        leases: list[Lease] = []

        async def work() -> None:
            leases.extend(
                await ocean.claim_work(
                    body.clog_id,
                    worker_id=body.worker_id,
                    lease_ms=body.lease_ms,
                    queues=body.queues,
                    limit=body.limit,
                    wait_ms=body.wait_ms,
                )
            )

        try:
            await while_listening(request, work)
        except BaseException:
            await _return_unheard(ocean, leases)
            raise
        return Answer({"leases": [lease_json(lease) for lease in leases]})

    async def renew(request: Request) -> Response:
        body = await read_body(request, RenewBody)
        expires_at = await ocean.renew_work(_lease_id(request), lease_ms=body.lease_ms, events=_events(body.events))
        return Answer({"expiresAt": expires_at})

    async def complete(request: Request) -> Response:
        body = await read_body(request, CompleteBody, COMPLETION_BYTES)
        done = await ocean.complete_work(
            _lease_id(request),
            body.outcome.outcome(),
            events=_events(body.events),
            row=body.written_row(),
            row_version=body.row_version,
        )
        return Answer(record(done))

    async def release(request: Request) -> Response:
        await read_body(request, Body)
        return Answer({"status": await ocean.release_work(_lease_id(request))})

    return [
        Route("/v1/leases", claim, methods=["POST"]),
        Route("/v1/leases/{lease_id}/renew", renew, methods=["POST"]),
        Route("/v1/leases/{lease_id}/complete", complete, methods=["POST"]),
        Route("/v1/leases/{lease_id}/release", release, methods=["POST"]),
    ]


async def _return_unheard(ocean: Kernel, leases: list[Lease]) -> None:
    """Leased while the worker went away, which therefore knows no id: others need not wait for it to lapse."""
    with anyio.CancelScope(shield=True):
        for lease in leases:
            with suppress(OceanError):
                await ocean.release_work(lease.lease_id)


def _lease_id(request: Request) -> str:
    return str(request.path_params["lease_id"])


def _events(events: list[EventBody]) -> list[tuple[str, Any]]:
    return [(event.type, event.payload) for event in events]
