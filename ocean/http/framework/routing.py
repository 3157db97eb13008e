"""Routes made from the table: one for each path, whose methods check what was sent and call their handlers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from ocean.access.guard import Guard
from ocean.http.framework.authorization import admitted
from ocean.http.framework.bodies import read_body
from ocean.http.framework.call import Call, Served
from ocean.http.framework.errors import KeyNotTaken
from ocean.http.framework.idempotency import AtWork, keeping
from ocean.http.framework.middleware import refused
from ocean.http.framework.operation import Op, Repeat
from ocean.http.framework.poker import Poker
from ocean.http.framework.query_strings import read_query
from ocean.state.errors import CallRefused, InvalidValue
from ocean.state.values import checked_id

IDEMPOTENCY_KEY = "Idempotency-Key"
WHY_NOT = {
    Repeat.SAFE: "it changes nothing",
    Repeat.NEVER: "it deals in secrets, which are not kept",
}


class SpelledRoute(Route):
    """Matched by the path as it was spelled: an escaped slash is part of a name, not the end of it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if "ocean.spelled" not in scope:
            scope["ocean.spelled"] = {**scope, "path": spelled_path(scope)}
        match, found = super().matches(scope["ocean.spelled"])
        for name in self.param_convertors if found else ():
            found["path_params"][name] = unquote(found["path_params"][name])
        return match, found


def spelled_path(scope: Scope) -> str:
    """Each name escaped in one way, however its sender did it. A server need not tell how that was."""
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    return "/".join(quote(unquote(name), safe="") for name in path.split("/"))


def make_routes(table: Sequence[Op], served: Served, poker: Poker | None) -> list[Route]:
    """One route for the methods of a path: else 405 would name only the first of them."""
    by_path: dict[str, dict[str, Op]] = {}
    at_work = AtWork()
    for op in table:
        handler = keeping(op.handler) if op.repeat is Repeat.KEPT else op.handler
        by_path.setdefault(op.path, {})[op.method] = replace(op, handler=at_work.alone(handler))
    return [SpelledRoute(path, _endpoint(ops, served, poker), methods=[*ops]) for path, ops in by_path.items()]


def _endpoint(ops: Mapping[str, Op], served: Served, poker: Poker | None) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        op = ops["GET" if request.method == "HEAD" else request.method]
        request.scope["ocean.route"] = op.path
        access = await admitted(served, request, op.scope)
        guard = Guard(served.ocean, access)
        why_not = f": {WHY_NOT[op.repeat]}" if op.repeat in WHY_NOT else None
        key = guard.request_key(given_key(request, op.path, why_not))
        await check_place(guard, op, request.path_params, is_keyed=key is not None)
        query = read_query(request, op.query)
        body = await read_body(request, op.body, op.most_bytes) if op.body else None
        try:
            response = await op.handler(Call(served, request, access, body, query, key))
        except CallRefused as refusal:
            # A method that refuses has committed what it did before, perhaps a signal.
            response = refused(request, refusal)
        if op.pokes and poker is not None:
            response.background = BackgroundTask(poker.poke)
        return response

    return answer


async def check_place(guard: Guard, op: Op, place: Mapping[str, Any], *, is_keyed: bool = False) -> None:
    """Whether the sender may do this where the path says. A run's feed is narrowed by its handler instead."""
    if op.scope == "open" or (op.is_streamed and "run_id" in place):
        return
    if "run_id" in place:
        await guard.check_run(place["run_id"], op.verb, is_keyed=is_keyed)
    elif "lease_id" in place:
        await guard.check_lease(place["lease_id"])
    elif "session_id" in place:
        guard.check_session(place["session_id"])
    elif op.reach == "all":
        guard.check_unlimited()


def given_key(request: Request, path: str, why_not: str | None) -> str | None:
    """The Idempotency-Key, if there is one; `why_not` refuses it."""
    given = request.headers.getlist(IDEMPOTENCY_KEY)
    if not given:
        return None
    if why_not is not None:
        raise KeyNotTaken(f"{request.method} {path} takes no {IDEMPOTENCY_KEY}{why_not}; leave it out")
    if len(given) > 1:
        raise InvalidValue(f"{IDEMPOTENCY_KEY} is given {len(given)} times; a request has one")
    return checked_id(given[0], IDEMPOTENCY_KEY)
