"""Runs: found, looked at, signalled, called, and ended."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field
from starlette.responses import Response

from ocean.http.framework.bodies import Body, Whole
from ocean.http.framework.call import Call
from ocean.http.framework.query_strings import Limit, Number, Query
from ocean.http.framework.wire import Answer, record
from ocean.http.handlers.wait_for_run import WhenSettled
from ocean.kernel.arguments import UNSET
from ocean.kernel.run_query import RunOrder, RunQuery
from ocean.kernel.verbs.leases import LONGEST_WAIT_MS
from ocean.state.errors import RunNotFound
from ocean.state.records import Input, RunCount, RunInfo, TickInfo

Status = Literal["idle", "pending", "active", "waiting", "done", "failed"]


class WaitQuery(Query):
    """`waitMs`: advance the run and answer when it has settled, at most so long."""

    wait_ms: Annotated[Number, Field(ge=0, le=LONGEST_WAIT_MS)] | None = None


class RunsQuery(Query):
    """Each set means any of its values. `attr.NAME=value` and one range `attr.NAME.gte=value` need a `clogId`."""

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
    order: RunOrder | None = None
    limit: Limit = 100
    cursor: str | None = None
    count_up_to: Annotated[Number, Field(ge=1, le=1_000_000)] | None = None


def which_runs(said: BaseModel) -> RunQuery:
    """What a query string or a body says of runs, in the kernel's words."""
    return cast(RunQuery, {name: getattr(said, name) for name in RunQuery.__annotations__})


class SignalBody(Body):
    """Without `input` it is a signal all the same. `signalId` makes it idempotent for as long as the run is kept."""

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
class Runs:
    """`count` is given if `countUpTo` was."""

    runs: tuple[RunInfo, ...]
    next_cursor: str | None
    count: RunCount | None


@dataclass(frozen=True, slots=True)
class Ticks:
    ticks: tuple[TickInfo, ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class Inputs:
    inputs: tuple[Input, ...]
    next_cursor: int | None


@dataclass(frozen=True, slots=True)
class Called:
    """What the method answered, as it answered it."""

    answer: Any


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many runs went, children included."""

    deleted: int


async def list_runs(call: Call) -> Response:
    query: RunsQuery = call.query
    which = call.guard.limited(which_runs(query))
    page = await call.ocean.list_runs(order=query.order, limit=query.limit, cursor=query.cursor, **which)
    count = None if query.count_up_to is None else await call.ocean.count_runs(cap=query.count_up_to, **which)
    return Answer(record(Runs(page.runs, page.next_cursor, count)))


async def get(call: Call) -> Response:
    return Answer(record(await _run(call)))


async def delete(call: Call) -> Response:
    gone = await call.ocean.delete_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(Deleted(gone)))


async def signal(call: Call) -> Response:
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
        return Answer(record(receipt), 202)
    return WhenSettled(call, receipt.run_id, receipt.seq, query.wait_ms)


async def call_method(call: Call) -> Response:
    body: CallBody = call.body
    answer = await call.ocean.call_clog(
        run_id=call.path("run_id"),
        method=call.path("method"),
        payload=body.payload,
        caller=call.caller,
        request_key=call.request_key,
    )
    return Answer(record(Called(answer)))


async def cancel(call: Call) -> Response:
    body: CancelBody = call.body
    run = await call.ocean.cancel_run(
        call.path("run_id"), reason=body.reason, actor=call.actor, request_key=call.request_key
    )
    return Answer(record(run))


async def pause(call: Call) -> Response:
    run = await call.ocean.pause_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(run))


async def resume(call: Call) -> Response:
    run = await call.ocean.resume_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(run))


async def retry(call: Call) -> Response:
    run = await call.ocean.retry_run(call.path("run_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(run), 201)


async def explain(call: Call) -> Response:
    return Answer(record(await call.guard.visible(await call.ocean.explain(call.path("run_id")))))


async def ticks(call: Call) -> Response:
    query: AfterQuery = call.query
    found = await call.ocean.list_ticks(call.path("run_id"), after=query.after, limit=query.limit)
    if not found:
        await _run(call)
    return Answer(record(Ticks(tuple(found), found[-1].tick if len(found) == query.limit else None)))


async def inputs(call: Call) -> Response:
    query: AfterQuery = call.query
    found = await call.ocean.list_inputs(call.path("run_id"), after=query.after, limit=query.limit)
    if not found:
        await _run(call)
    return Answer(record(Inputs(tuple(found), found[-1].number if len(found) == query.limit else None)))


async def _run(call: Call) -> RunInfo:
    run_id = call.path("run_id")
    run = await call.ocean.get_run(run_id)
    if run is None:
        raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
    return run
