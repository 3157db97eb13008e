"""What is not one run's: advancing, sessions, clogs, tools, concurrency keys, counters."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from ocean.http.framework.bodies import Body, Whole
from ocean.http.framework.call import Call
from ocean.http.framework.errors import WrongScope
from ocean.http.framework.query_strings import Limit, Query
from ocean.http.framework.wire import Answer, record
from ocean.http.handlers.runs import Called, Deleted
from ocean.state.dry_run_result import DryRun
from ocean.state.outcomes import Failed, Outcome, Retry, error_info, outcome_name
from ocean.state.records import ClogRecord, KeyInfo, TickResult

LONGEST_BUDGET_MS = 60_000


class AdvanceBody(Body):
    """`dryRun` shows the next tick of the run named, and changes nothing."""

    budget_ms: Annotated[Whole, Field(ge=0, le=LONGEST_BUDGET_MS)] = 1_000
    run_id: str | None = None
    max_ticks: Annotated[Whole, Field(ge=0)] | None = None
    dry_run: bool = False


class ClogCallBody(Body):
    session_id: str | None = None
    payload: Any = None


class LimitBody(Body):
    """How many runs may work under the key at once; 0 stops them."""

    limit: Whole


class TakeBody(Body):
    """`n` 0 only looks. Without `limit` it only counts; with `perMs` the limit is in so much time."""

    n: Whole = 1
    limit: Whole | None = None
    per_ms: Whole | None = None
    refill: Literal["steady", "at_once"] = "steady"


class KeysQuery(Query):
    """`after` is the last key already seen."""

    after: str = ""
    limit: Limit = 100


class ToolsQuery(Query):
    """`format` is Ocean's, or that of a model's API; with `clogId`, only what that clog can invoke."""

    format: Literal["ocean", "openai", "anthropic"] = "ocean"
    clog_id: str | None = None


@dataclass(frozen=True, slots=True)
class Advanced:
    """What the poke did, and when the next one is needed; or what a dry run showed."""

    advanced: int
    outcomes: tuple[TickResult, ...]
    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    unclaimable: int
    dry_run: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Clogs:
    clogs: tuple[ClogRecord, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    keys: tuple[KeyInfo, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Tool:
    """`denied` is the pattern by which this instance denies it; None if it does not."""

    name: str
    description: str
    reaches_out: bool
    dangerous: bool
    denied: str | None
    input_schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tools:
    """In the form of a model's API, if one was asked for."""

    tools: tuple[Tool | dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Reset:
    """False if there was nothing to forget."""

    reset: bool


async def advance(call: Call) -> Response:
    body: AdvanceBody = call.body
    if body.dry_run and not call.access.may("read"):
        raise WrongScope("a dry run shows what is stored: this key is not for 'read'; use one that is", scope="read")
    if body.run_id is None or body.dry_run:
        # The rows that a dry run shows may be the clog's, for all its sessions.
        call.guard.check_unlimited()
    else:
        await call.guard.check_run(body.run_id, None)
    done = await call.ocean.advance(
        budget_ms=body.budget_ms, run_id=body.run_id, max_ticks=body.max_ticks, dry_run=body.dry_run, source="http"
    )
    return Answer(
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


def dry_run_json(shown: DryRun) -> dict[str, Any]:
    said: dict[str, Any] = record(shown)
    return said | {"outcome": None if shown.outcome is None else outcome_json(shown.outcome)}


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """As a worker would say it."""
    said: dict[str, Any] = {"type": outcome_name(outcome)} | record(outcome)
    if isinstance(outcome, Retry | Failed):
        said["error"] = error_info(outcome.error).as_json()
    return said


async def delete_session(call: Call) -> Response:
    await call.guard.check_session_delete(call.path("session_id"))
    gone = await call.ocean.delete_session(call.path("session_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(Deleted(gone)))


async def list_clogs(call: Call) -> Response:
    return Answer(record(Clogs(tuple(await call.ocean.list_clogs()))))


async def pause_clog(call: Call) -> Response:
    await call.guard.check_clog(call.path("clog_id"), "pause")
    clog = await call.ocean.pause_clog(call.path("clog_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(clog))


async def resume_clog(call: Call) -> Response:
    await call.guard.check_clog(call.path("clog_id"), "pause")
    clog = await call.ocean.resume_clog(call.path("clog_id"), actor=call.actor, request_key=call.request_key)
    return Answer(record(clog))


async def call_method(call: Call) -> Response:
    body: ClogCallBody = call.body
    call.guard.check_session(body.session_id)
    await call.guard.check_clog(call.path("clog_id"), "call")
    answer = await call.ocean.call_clog(
        clog_id=call.path("clog_id"),
        session_id=body.session_id,
        method=call.path("method"),
        payload=body.payload,
        caller=call.caller,
        request_key=call.request_key,
    )
    return Answer(record(Called(answer)))


async def list_tools(call: Call) -> Response:
    query: ToolsQuery = call.query
    if query.format != "ocean":
        return Answer(record(Tools(tuple(call.ocean.tool_schemas(query.format, clog_id=query.clog_id)))))
    tools = call.ocean.list_tools(query.clog_id)
    return Answer(
        record(
            Tools(
                tuple(
                    Tool(each.name, each.description, each.reaches_out, each.dangerous, each.denied, each.json_schema())
                    for each in tools
                )
            )
        )
    )


async def list_keys(call: Call) -> Response:
    query: KeysQuery = call.query
    keys = await call.ocean.list_keys(after=query.after, limit=query.limit)
    return Answer(record(Keys(tuple(keys), keys[-1].key if len(keys) == query.limit else None)))


async def get_key(call: Call) -> Response:
    return Answer(record(await call.ocean.get_key(call.path("key"))))


async def set_limit(call: Call) -> Response:
    body: LimitBody = call.body
    key = await call.ocean.set_limit(call.path("key"), body.limit, actor=call.actor, request_key=call.request_key)
    return Answer(record(key))


async def take(call: Call) -> Response:
    body: TakeBody = call.body
    taken = await call.ocean.take(
        call.path("key"), body.n, body.limit, body.per_ms, refill=body.refill, request_key=call.request_key
    )
    return Answer(record(taken))


async def reset_counter(call: Call) -> Response:
    return Answer(record(Reset(await call.ocean.reset_counter(call.path("key"), request_key=call.request_key))))
