"""Runs: list, read, signal, call and end them."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.parsing import Body, Flag, Limit, Number, Query, Whole
from ocean.http.framework.responses import JsonResponse, record
from ocean.http.handlers.wait_for_run import WhenSettled
from ocean.kernel.arguments import UNSET
from ocean.kernel.run_query import RunOrder, RunQuery
from ocean.kernel.verbs.leases import LONGEST_WAIT_MS
from ocean.state.errors import RunNotFound
from ocean.state.records import Input, RunCount, RunInfo, TickInfo

Status = Literal["idle", "pending", "active", "waiting", "done", "failed"]


class WaitQuery(Query):
    """`waitMs`: advance the run and respond when it has settled, after this time at the latest."""

    wait_ms: Annotated[Number, Field(ge=0, le=LONGEST_WAIT_MS)] | None = None


class RunsQuery(Query):
    """A repeated name matches any value. `attr.NAME=value`, or one range `attr.NAME.gte=value`, need `clogId`."""

    takes_attributes: ClassVar[bool] = True

    clog_id: list[str] | None = None
    session_id: list[str] | None = None
    status: list[Status] | None = None
    parent_run_id: list[str] | None = None
    created_from: Number | None = None
    created_until: Number | None = None
    ended_from: Number | None = None
    ended_until: Number | None = None
    attributes: dict[str, Any] | None = None
    end_incomplete: Flag | None = None
    order: RunOrder | None = None
    limit: Limit = 100
    cursor: str | None = None
    count_up_to: Annotated[Number, Field(ge=1, le=1_000_000)] | None = None


def run_query(given: BaseModel) -> RunQuery:
    """Return the filters of a query string or a body as a query of the kernel."""
    return cast(RunQuery, {name: getattr(given, name) for name in RunQuery.__annotations__})


class SignalBody(Body):
    """`input` is optional. `signalId` makes the signal idempotent for as long as the run is kept."""

    input: Any = None
    signal_id: str | None = None
    deliver_at: Whole | None = None
    if_idle: bool = False


class CallBody(Body):
    payload: Any = None


class CancelBody(Body):
    reason: str | None = None


class AfterQuery(Query):
    """`after` is the last number already seen."""

    after: Annotated[Number, Field(ge=0)] = 0
    limit: Limit = 100


@dataclass(frozen=True, slots=True)
class RunList:
    """A page of runs; `count` is present if `countUpTo` was given."""

    runs: tuple[RunInfo, ...]
    next_cursor: str | None
    count: RunCount | None


@dataclass(frozen=True, slots=True)
class Ticks:
    """A page of a run's ticks; continue after `nextCursor`."""

    ticks: tuple[TickInfo, ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class Inputs:
    """A page of a run's inbox; continue after `nextCursor`."""

    inputs: tuple[Input, ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class Called:
    """What the method returned, unchanged."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Deleted:
    """The number of deleted runs, children included."""

    deleted: int


async def list_runs(call: HandlerCall) -> Response:
    """Respond with a page of the runs that match, and perhaps their number."""
    query: RunsQuery = call.query
    which = call.guard.limited(run_query(query))
    page = await call.ocean.list_runs(order=query.order, limit=query.limit, cursor=query.cursor, **which)
    count = None if query.count_up_to is None else await call.ocean.count_runs(cap=query.count_up_to, **which)
    return JsonResponse(record(RunList(page.runs, page.next_cursor, count)))


async def get(call: HandlerCall) -> Response:
    """Respond with a run."""
    return JsonResponse(record(await _run(call)))


async def delete(call: HandlerCall) -> Response:
    """Delete a run and its children."""
    deleted = await call.ocean.delete_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(Deleted(deleted)))


async def signal(call: HandlerCall) -> Response:
    """Append an input to a run's inbox; with `waitMs`, wait until the run has settled."""
    body: SignalBody = call.body
    query: WaitQuery = call.query
    receipt = await call.ocean.signal(
        call.path("run_id"),
        body.input if "input" in body.model_fields_set else UNSET,
        signal_id=body.signal_id,
        deliver_at=body.deliver_at,
        if_idle=body.if_idle,
        actor=call.actor,
        request_key=call.request_key,
    )
    if query.wait_ms is None:
        return JsonResponse(record(receipt), 202)
    return WhenSettled(call, receipt.run_id, receipt.seq, query.wait_ms)


async def call_method(call: HandlerCall) -> Response:
    """Call a method of the run's clog."""
    body: CallBody = call.body
    returned = await call.ocean.call_clog(
        run_id=call.path("run_id"),
        method=call.path("method"),
        payload=body.payload,
        caller=call.caller,
        request_key=call.request_key,
    )
    return JsonResponse(record(Called(returned)))


async def cancel(call: HandlerCall) -> Response:
    """End a run as failed."""
    body: CancelBody = call.body
    run = await call.ocean.cancel_run(
        call.path("run_id"), reason=body.reason, actor=call.actor, request_key=call.request_key
    )
    return JsonResponse(record(run))


async def pause(call: HandlerCall) -> Response:
    """Pause a run."""
    run = await call.ocean.pause_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(run))


async def resume(call: HandlerCall) -> Response:
    """Resume a paused run."""
    run = await call.ocean.resume_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(run))


async def retry(call: HandlerCall) -> Response:
    """Retry a failed run as a new run."""
    run = await call.ocean.retry_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(run), 201)


async def retry_end(call: HandlerCall) -> Response:
    """Call the last tick again of a run that has ended without it."""
    run = await call.ocean.retry_end(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(run))


async def explain(call: HandlerCall) -> Response:
    """Respond with the conditions that hold a run back."""
    return JsonResponse(record(await call.guard.visible(await call.ocean.explain(call.path("run_id")))))


async def ticks(call: HandlerCall) -> Response:
    """Respond with a page of a run's ticks."""
    query: AfterQuery = call.query
    found = await call.ocean.list_ticks(call.path("run_id"), after=query.after, limit=query.limit)
    if not found:
        await _run(call)
    return JsonResponse(record(Ticks(tuple(found), found[-1].tick if len(found) == query.limit else None)))


async def inputs(call: HandlerCall) -> Response:
    """Respond with a page of a run's inbox."""
    query: AfterQuery = call.query
    found = await call.ocean.list_inputs(call.path("run_id"), after=query.after, limit=query.limit)
    if not found:
        await _run(call)
    return JsonResponse(record(Inputs(tuple(found), found[-1].number if len(found) == query.limit else None)))


async def _run(call: HandlerCall) -> RunInfo:
    run_id = call.path("run_id")
    run = await call.ocean.get_run(run_id)
    if run is None:
        raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
    return run
