"""The lines of the route table, and the Starlette routes made from them.

`Op` describes one operation; the routes, their checks and the OpenAPI document are all derived from it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote, unquote

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope as AsgiScope

from ocean.access.guard import Guard
from ocean.http.framework.authorization import authorize
from ocean.http.framework.call import HandlerCall, Poker, ServerState
from ocean.http.framework.idempotency import Handler, RunningRequests, given_key, storing_response
from ocean.http.framework.middleware import error_response
from ocean.http.framework.parsing import Body, Query, read_body, read_query
from ocean.state.errors import CallRefused
from ocean.state.records import GenericVerb, KeyScope
from ocean.state.values import MAX_BYTES

Scope = KeyScope | Literal["any", "open"]
"""The scope that a key must have. `any` accepts every key; `open` needs no key and must not reveal secrets."""
Reach = Literal["all", "named", "none"]
"""Which sessions a route concerns if its path has no run, lease or session: `all`, so that a key limited to some
sessions is refused; `named`, those that the request names, which the handler checks; or `none`."""


class Repeat(StrEnum):
    """What happens when the same request is sent a second time."""

    KEYED = "keyed"
    """It is a new request, unless both have the same Idempotency-Key: then it returns the first response."""
    SAFE = "safe"
    """Nothing: the route only reads."""
    KEPT = "kept"
    """Like `KEYED`, but the work takes several transactions and may be repeated; the response is stored at the end."""
    NEVER = "never"
    """It is always a new request."""


WHY_NO_KEY = {
    Repeat.SAFE: "it changes nothing",
    Repeat.NEVER: "its response contains secrets, which are not stored",
}


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One method of one path. `responses` maps a status to a record, or to a description if it is not JSON."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    scope: Scope
    summary: str
    handler: Handler
    responses: Mapping[int, Any] = field(default_factory=dict)
    verb: GenericVerb | None = None
    """What it does with the run in its path; the run's clog must allow it."""
    reach: Reach = "all"
    body: type[Body] | None = None
    query: type[Query] = Query
    repeat: Repeat = Repeat.SAFE
    pokes: bool = False
    """Whether due runs are advanced after the response."""
    most_bytes: int = MAX_BYTES
    media_type: str = "text/html"
    """The media type of a response that is not JSON."""
    is_streamed: bool = False
    """Whether it responds with a stream to clients that accept one."""


class EscapedPathRoute(Route):
    """Matches the path before it is unescaped: an escaped slash is part of a name, not a separator."""

    def matches(self, scope: AsgiScope) -> tuple[Match, AsgiScope]:
        """Match the escaped path, then unescape the parameters."""
        if "ocean.escaped" not in scope:
            scope["ocean.escaped"] = {**scope, "path": escaped_path(scope)}
        match, found = super().matches(scope["ocean.escaped"])
        for name in self.param_convertors if found else ():
            found["path_params"][name] = unquote(found["path_params"][name])
        return match, found


def escaped_path(scope: AsgiScope) -> str:
    """Return the path with every segment escaped in the same way. ASGI servers need not provide `raw_path`."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    return "/".join(quote(unquote(name), safe="") for name in path.split("/"))


def make_routes(table: Sequence[Op], server: ServerState, poker: Poker | None) -> list[Route]:
    """Return one route per path with all its methods; otherwise a 405 would name only the first of them."""
    by_path: dict[str, dict[str, Op]] = {}
    running = RunningRequests()
    for op in table:
        handler = storing_response(op.handler) if op.repeat is Repeat.KEPT else op.handler
        by_path.setdefault(op.path, {})[op.method] = replace(op, handler=running.exclusive(handler))
    return [EscapedPathRoute(path, _endpoint(ops, server, poker), methods=[*ops]) for path, ops in by_path.items()]


def _endpoint(
    ops: Mapping[str, Op], server: ServerState, poker: Poker | None
) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        op = ops["GET" if request.method == "HEAD" else request.method]
        request.scope["ocean.route"] = op.path
        access = await authorize(server, request, op.scope)
        guard = Guard(server.ocean, access)
        refusal = f": {WHY_NO_KEY[op.repeat]}" if op.repeat in WHY_NO_KEY else None
        key = guard.request_key(given_key(request, op.path, refusal))
        await check_path(guard, op, request.path_params, is_keyed=key is not None)
        query = read_query(request, op.query)
        body = await read_body(request, op.body, op.most_bytes) if op.body else None
        try:
            response = await op.handler(HandlerCall(server, request, access, body, query, key))
        except CallRefused as refused:
            # The method has committed what it did before it refused, for example a signal, so this pokes too.
            response = error_response(request, refused)
        if op.pokes and poker is not None:
            response.background = BackgroundTask(poker)
        return response

    return respond


async def check_path(guard: Guard, op: Op, parameters: Mapping[str, Any], *, is_keyed: bool = False) -> None:
    """Refuse the request if the sender may not do this to what the path names.

    The feed of a run is not checked here: its handler narrows it to what the sender may read.
    """
    if op.scope == "open" or (op.is_streamed and "run_id" in parameters):
        return
    if "run_id" in parameters:
        await guard.check_run(parameters["run_id"], op.verb, is_keyed=is_keyed)
    elif "lease_id" in parameters:
        await guard.check_lease(parameters["lease_id"])
    elif "session_id" in parameters:
        guard.check_session(parameters["session_id"])
    elif op.reach == "all":
        guard.check_unlimited()
