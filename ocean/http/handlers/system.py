"""Routes that do not concern a single run: advance, sessions, clogs, tools, concurrency keys, counters."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.errors import WrongScope
from ocean.http.framework.outcome_json import dry_run_json
from ocean.http.framework.parsing import Body, Limit, Query, Whole
from ocean.http.framework.responses import JsonResponse, record
from ocean.http.handlers.runs import Called, Deleted
from ocean.state.records import ClogRecord, KeyInfo, TickResult

LONGEST_BUDGET_MS = 60_000


class AdvanceBody(Body):
    """`dryRun` shows the next tick of the run in `runId` and changes nothing."""

    budget_ms: Annotated[Whole, Field(ge=0, le=LONGEST_BUDGET_MS)] = 1_000
    run_id: str | None = None
    max_ticks: Annotated[Whole, Field(ge=0)] | None = None
    dry_run: bool = False


class ClogCallBody(Body):
    session_id: str | None = None
    payload: Any = None


class LimitBody(Body):
    """How many runs with this key may be active at once; 0 stops them."""

    limit: Whole


class TakeBody(Body):
    """`n` 0 only reads. Without `limit` it only counts; with `perMs` the limit applies to that period of time."""

    n: Whole = 1
    limit: Whole | None = None
    per_ms: Whole | None = None
    refill: Literal["steady", "at_once"] = "steady"


class KeysQuery(Query):
    """`after` is the last key already seen."""

    after: str = ""
    limit: Limit = 100


class ToolsQuery(Query):
    """`format` is Ocean's own or that of a model's API; with `clogId`, only the tools that this clog may invoke."""

    format: Literal["ocean", "openai", "anthropic"] = "ocean"
    clog_id: str | None = None


@dataclass(frozen=True, slots=True)
class Advanced:
    """What the poke did and when the next one is needed, or the result of a dry run."""

    advanced: int
    outcomes: tuple[TickResult, ...]
    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    unclaimable: int
    dry_run: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Clogs:
    """All registered clogs."""

    clogs: tuple[ClogRecord, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """A page of concurrency keys; continue after `nextCursor`."""

    keys: tuple[KeyInfo, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool. `denied` is the pattern with which this instance denies it, or null."""

    name: str
    description: str
    reaches_out: bool
    dangerous: bool
    denied: str | None
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools, in the format that was requested."""

    tools: tuple[ToolInfo | dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Reset:
    """False if the counter had no takes."""

    reset: bool


async def advance(call: HandlerCall) -> Response:
    """Advance due runs, or one run; or show the next tick of one."""
    body: AdvanceBody = call.body
    if body.dry_run and not call.access.may("read"):
        raise WrongScope("for a dry run the key must have the scope 'read' too: it shows stored data", scope="read")
    if body.run_id is None or body.dry_run:
        # The rows that a dry run shows may belong to the clog, across all sessions.
        call.guard.check_unlimited()
    else:
        await call.guard.check_run(body.run_id, None)
    done = await call.ocean.advance(
        budget_ms=body.budget_ms, run_id=body.run_id, max_ticks=body.max_ticks, dry_run=body.dry_run, source="http"
    )
    return JsonResponse(
        record(
            Advanced(
                done.advanced,
                done.outcomes,
                done.due_now,
                done.next_wake_at,
                done.oldest_due_age_ms,
                done.unclaimable,
                None if done.dry_run is None else dry_run_json(done.dry_run),
            )
        )
    )


async def delete_session(call: HandlerCall) -> Response:
    """Delete a session with all its runs."""
    await call.guard.check_session_delete(call.path("session_id"))
    deleted = await call.ocean.delete_session(call.path("session_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(Deleted(deleted)))


async def list_clogs(call: HandlerCall) -> Response:
    """Respond with all registered clogs."""
    return JsonResponse(record(Clogs(tuple(await call.ocean.list_clogs()))))


async def pause_clog(call: HandlerCall) -> Response:
    """Pause all runs of a clog."""
    await call.guard.check_clog(call.path("clog_id"), "pause")
    clog = await call.ocean.pause_clog(call.path("clog_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(clog))


async def resume_clog(call: HandlerCall) -> Response:
    """Resume the runs of a paused clog."""
    await call.guard.check_clog(call.path("clog_id"), "pause")
    clog = await call.ocean.resume_clog(call.path("clog_id"), actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(clog))


async def call_method(call: HandlerCall) -> Response:
    """Call a method of a clog, optionally in a session."""
    body: ClogCallBody = call.body
    call.guard.check_session(body.session_id)
    await call.guard.check_clog(call.path("clog_id"), "call")
    returned = await call.ocean.call_clog(
        clog_id=call.path("clog_id"),
        session_id=body.session_id,
        method=call.path("method"),
        payload=body.payload,
        caller=call.caller,
        request_key=call.request_key,
    )
    return JsonResponse(record(Called(returned)))


async def list_tools(call: HandlerCall) -> Response:
    """Respond with the tools and their schemas."""
    query: ToolsQuery = call.query
    if query.format != "ocean":
        return JsonResponse(record(ToolList(tuple(call.ocean.tool_schemas(query.format, clog_id=query.clog_id)))))
    tools = tuple(
        ToolInfo(each.name, each.description, each.reaches_out, each.dangerous, each.denied, each.json_schema())
        for each in call.ocean.list_tools(query.clog_id)
    )
    return JsonResponse(record(ToolList(tools)))


async def list_keys(call: HandlerCall) -> Response:
    """Respond with a page of concurrency keys."""
    query: KeysQuery = call.query
    keys = await call.ocean.list_keys(after=query.after, limit=query.limit)
    return JsonResponse(record(Keys(tuple(keys), keys[-1].key if len(keys) == query.limit else None)))


async def get_key(call: HandlerCall) -> Response:
    """Respond with a concurrency key."""
    return JsonResponse(record(await call.ocean.get_key(call.path("key"))))


async def set_limit(call: HandlerCall) -> Response:
    """Set the limit of a concurrency key."""
    body: LimitBody = call.body
    key = await call.ocean.set_limit(call.path("key"), body.limit, actor=call.actor, request_key=call.request_key)
    return JsonResponse(record(key))


async def take(call: HandlerCall) -> Response:
    """Take from a counter."""
    body: TakeBody = call.body
    taken = await call.ocean.take(
        call.path("key"), body.n, body.limit, body.per_ms, refill=body.refill, request_key=call.request_key
    )
    return JsonResponse(record(taken))


async def reset_counter(call: HandlerCall) -> Response:
    """Reset a counter."""
    return JsonResponse(record(Reset(await call.ocean.reset_counter(call.path("key"), request_key=call.request_key))))
