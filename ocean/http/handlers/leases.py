"""Leases: claim ticks of external clogs, and renew, complete or release one by its secret id."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from pydantic import Field, model_validator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall, Stopping
from ocean.http.framework.outcome_json import OutcomeBody
from ocean.http.framework.parsing import Body, Whole
from ocean.http.framework.responses import JsonResponse, camel, record
from ocean.kernel.arguments import CLEAR, UNSET
from ocean.kernel.kernel import Kernel
from ocean.kernel.verbs.leases import DEFAULT_LEASE_MS, LONGEST_LEASE_MS, LONGEST_WAIT_MS, SHORTEST_LEASE_MS, Lease
from ocean.state.errors import OceanError
from ocean.state.records import Input, RunStatus
from ocean.state.values import MAX_BYTES

COMPLETION_BYTES = 4 * MAX_BYTES
"""An output, a row and events: each may have the size of the largest value."""
RUN_FIELDS = (
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
"""The fields of the run that a worker gets with its lease."""

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
    """`row` replaces the run's row, null included; `clearRow` removes it; without both it stays unchanged."""

    outcome: OutcomeBody = Field(discriminator="type")
    events: list[EventBody] = Field(default_factory=list)
    row: Any = None
    clear_row: bool = False
    row_version: Annotated[Whole, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def has_one_row_change(self) -> "CompleteBody":
        """Refuse a body that both writes and removes the row."""
        if self.clear_row and "row" in self.model_fields_set:
            raise ValueError("row and clearRow must not be given together: one writes the row, the other removes it")
        return self

    def written_row(self) -> Any:
        """Return the row to write, `CLEAR` to remove it, or `UNSET`."""
        return CLEAR if self.clear_row else self.row if "row" in self.model_fields_set else UNSET


def lease_json(lease: Lease) -> dict[str, Any]:
    """Return a lease as JSON. `leaseId` comes first, so that a worker without a JSON parser finds it."""
    content: dict[str, Any] = record(lease)
    del content["run"]
    return content | {camel(name): record(getattr(lease.run, name)) for name in RUN_FIELDS} | {"input": lease.input}


@dataclass(frozen=True, slots=True)
class Leased:
    """One tick to do before `expiresAt`. `leaseId` is the secret to renew and complete it with; it comes first."""

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
    """The ticks that were leased; empty if nothing was due."""

    leases: tuple[Leased, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """When the lease now expires."""

    expires_at: int


@dataclass(frozen=True, slots=True)
class Released:
    """The run's status after the release."""

    status: RunStatus


async def claim(call: HandlerCall) -> Response:
    """Lease due ticks of a clog; with `waitMs`, wait for one."""
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
        await _until_disconnect(call.request, call.server.stopping, work)
    except BaseException:
        await _release_all(call.ocean, leases)
        raise
    return JsonResponse({"leases": [lease_json(lease) for lease in leases]})


async def renew(call: HandlerCall) -> Response:
    """Extend a lease and append events."""
    body: RenewBody = call.body
    expires_at = await call.ocean.renew_work(
        call.path("lease_id"), lease_ms=body.lease_ms, events=_events(body.events), request_key=call.request_key
    )
    return JsonResponse(record(Renewed(expires_at)))


async def complete(call: HandlerCall) -> Response:
    """Commit a leased tick with its outcome."""
    body: CompleteBody = call.body
    done = await call.ocean.complete_work(
        call.path("lease_id"),
        body.outcome.outcome(),
        events=_events(body.events),
        row=body.written_row(),
        row_version=body.row_version,
    )
    return JsonResponse(record(done))


async def release(call: HandlerCall) -> Response:
    """Return a leased tick undone."""
    status = await call.ocean.release_work(call.path("lease_id"), request_key=call.request_key)
    return JsonResponse(record(Released(status)))


async def _until_disconnect(request: Request, stopping: Stopping, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work, but cancel it and raise `ClientDisconnect` if the caller disconnects.

    It raises even if the work was done at that moment: there is no connection to respond on. The body must have been
    read. If the server stops, the work is cancelled too and this returns, so that the caller still gets a response.
    """
    error: Exception | None = None
    is_gone = False

    async def listen() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        tasks.cancel_scope.cancel()

    async def act() -> None:
        nonlocal error
        try:
            await work()
        except Exception as raised:
            error = raised
        tasks.cancel_scope.cancel()

    # The work is a task of the group: a native cancellation by the server reaches it as the group's own, which the
    # store's shield delays until the result of a write in progress is known.
    with stopping.calling(lambda: tasks.cancel_scope.cancel()):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            tasks.start_soon(act)
            if stopping.is_set:
                tasks.cancel_scope.cancel()
    if is_gone:
        raise ClientDisconnect
    if error is not None:
        raise error


async def _release_all(ocean: Kernel, leases: list[Lease]) -> None:
    """Release leases whose ids never reached the worker, so that other workers need not wait until they expire."""
    with anyio.CancelScope(shield=True):
        for lease in leases:
            with suppress(OceanError):
                await ocean.release_work(lease.lease_id)


def _events(events: list[EventBody]) -> list[tuple[str, Any]]:
    return [(event.type, event.payload) for event in events]
