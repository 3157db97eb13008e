"""The routes that clogs mount: admitted, limited and parsed as Ocean's own, answered and refused in their words."""

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ocean.access.guard import Guard
from ocean.clog.routes import ANONYMOUS, CHECKED, Errors, Incoming, Reply, Route
from ocean.http.framework.authorization import admitted
from ocean.http.framework.bodies import check_content_type, checked, parsed, read_bytes
from ocean.http.framework.call import Served
from ocean.http.framework.errors import MethodNotAllowed, Unexpected, wrong_here
from ocean.http.framework.idempotency import AtWork
from ocean.http.framework.middleware import allowed_methods, headers_of, refused, request_id_of
from ocean.http.framework.poker import Poker
from ocean.http.framework.query_strings import fitted_query
from ocean.http.framework.routing import SpelledRoute, given_key
from ocean.http.framework.wire import GUARDED
from ocean.kernel.invoke import invoke
from ocean.kernel.metrics import plain_code
from ocean.state.access import Access
from ocean.state.errors import CallRefused, ClogError, OceanError, Refuse
from ocean.state.values import shown

NO_BODY = (204, 304)
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
VALUE = re.compile(r"[\t -~\xa0-\xff]*")
FRAMING = frozenset({"connection", "content-length", "transfer-encoding"})
SECRET_HEADERS = frozenset({"authorization", "cookie"})

logger = logging.getLogger("ocean.http")


class MountedRoute(SpelledRoute):
    """The methods of one path. A method that it has not is refused in the words of the clog whose path it is."""

    def __init__(self, routes: Mapping[str, Route], served: Served, poker: Poker | None, at_work: AtWork) -> None:
        self._first = next(iter(routes.values()))
        self._served = served
        # What is asked for is escaped before it is matched, so the path's own words are too.
        parts = re.split("({[^}]*})", self._first.path)
        path = "".join(part if part.startswith("{") else quote(part) for part in parts)
        super().__init__(path, _endpoint(routes, served, poker, at_work), methods=[*routes])

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["ocean.route"] = self._first.path
        if scope["method"] in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive)
        allowed = ", ".join(allowed_methods(request))
        error = MethodNotAllowed(f"{scope['method']} is not allowed here; there is {allowed}")
        response = refusal(self._first.errors, error, unread(self._served, request), request)
        response.headers["Allow"] = allowed
        await response(scope, receive, send)


def mounted_routes(routes: Sequence[Route], served: Served, poker: Poker | None) -> list[MountedRoute]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    at_work = AtWork()
    return [MountedRoute(methods, served, poker, at_work) for methods in by_path.values()]


def _endpoint(
    routes: Mapping[str, Route], served: Served, poker: Poker | None, at_work: AtWork
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        route = routes["GET" if request.method == "HEAD" else request.method]
        incoming = unread(served, request, shows_keys=route.access == "open" or callable(route.access))
        is_handled = False
        try:
            guard = Guard(served.ocean, await _access(route, served, request, incoming))
            incoming = _known(route, incoming, guard)
            given = given_key(request, route.path, None if route.keyed else "")
            incoming = replace(incoming, request_key=_own_key(route, guard, given))
            if route.check is not None:
                await invoke(route.check, incoming)
            incoming = replace(incoming, raw=await read_bytes(request, route.most_bytes))
            incoming = _fitted(route, request, incoming)
            is_handled = True
            with at_work.on(None if route.keyed == "own" else incoming.request_key):
                response = rendered(await invoke(route.handler, incoming))
        except ClientDisconnect:
            raise
        except Exception as error:
            response = refusal(route.errors, error, incoming, request)
        if is_handled and poker is not None and route.method != "GET":
            response.background = BackgroundTask(poker.poke)
        return response

    return answer


async def _access(route: Route, served: Served, request: Request, incoming: Incoming) -> Access:
    assert route.access is not None, "a server with a route that has none does not start"
    if not callable(route.access):
        return await admitted(served, request, route.access)
    access = await invoke(route.access, incoming)
    if not isinstance(access, Access):
        raise ClogError(f"the access policy of {route.name} answers an Access, got {shown(access)}")
    request.scope["ocean.actor"] = access.actor
    return access


def unread(served: Served, request: Request, shows_keys: bool = False) -> Incoming:
    """The request before anything of it is looked at. Ocean's keys are not for clogs to see."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        if shows_keys or name not in SECRET_HEADERS:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Incoming(
        ocean=served.ocean,
        method=request.method,
        path={name: str(value) for name, value in request.path_params.items()},
        pairs=tuple(request.query_params.multi_items()),
        headers=headers,
        request_id=request_id_of(request),
        parse=parsed,
    )


def _known(route: Route, incoming: Incoming, guard: Guard) -> Incoming:
    if route.access == "open":
        return replace(incoming, access=ANONYMOUS)
    if route.session is None:
        guard.check_unlimited()
    elif route.session != CHECKED:
        guard.check_session(incoming.path[route.session])
    return replace(incoming, access=guard.access)


def _own_key(route: Route, guard: Guard, key: str | None) -> str | None:
    """Of a sender without a name, whatever else the clog knows of it, apart from those of all who have one."""
    is_nobody = guard.access.actor is None and (route.access == "open" or callable(route.access))
    return f"0::{key}" if is_nobody and key is not None else guard.request_key(key)


def _fitted(route: Route, request: Request, incoming: Incoming) -> Incoming:
    """An empty body is an empty object: the model says whether that will do."""
    if incoming.raw and route.content_type is not None:
        check_content_type(request, route.content_type)
    query = fitted_query(incoming.pairs, route.query) if route.query else None
    body = checked(parsed(incoming.raw) if incoming.raw else {}, route.body) if route.body else None
    return replace(incoming, query=query, body=body)


def rendered(answer: Any, status: int = 200) -> Response:
    """A clog's answer. What is no JSON is the clog's mistake, and none of the caller's."""
    reply = answer if isinstance(answer, Reply) else Reply(answer, status)
    headers = {**GUARDED}
    for name, value in reply.headers.items():
        if not HEADER.fullmatch(name) or name.lower() in FRAMING or not VALUE.fullmatch(value):
            raise ClogError(f"a reply cannot have the header {shown(name)}")
        headers = {kept: other for kept, other in headers.items() if kept.lower() != name.lower()} | {name: value}
    if isinstance(reply.status, bool) or not isinstance(reply.status, int) or not 200 <= reply.status <= 599:
        raise ClogError(f"a reply's status is from 200 to 599, got {shown(reply.status)}")
    if reply.status in NO_BODY:
        return Response(None, reply.status, headers)
    if isinstance(reply.content, bytes):
        return Response(reply.content, reply.status, headers)
    text = json.dumps(reply.content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_dumped)
    return Response(text.encode("utf-8", "replace"), reply.status, headers, "application/json")


def _dumped(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise ClogError(f"a reply is JSON, bytes or a model, got {shown(value)} in it")


def refusal(errors: Errors | None, error: Exception, incoming: Incoming, request: Request) -> Response:
    """The refusal as the clog words it, or as Ocean does. What was not expected goes to the log, and no further."""
    said = _said(error, incoming.request_id)
    if errors is None:
        return refused(request, said)
    if said.http_status >= 500 and said is error:
        # Without the message, which may be a clog's own.
        logger.warning("%s in request %s", plain_code(said.code), incoming.request_id)
    response = rendered(errors(said, incoming), said.http_status)
    for name, value in headers_of(said).items():
        response.headers.setdefault(name, value)
    return response


def _said(error: Exception, request_id: str) -> OceanError:
    match error:
        case Refuse():
            return CallRefused(error.message, error.code, error.http_status, error.details)
        case ClogError():
            logger.error("a clog's route broke the contract in request %s", request_id, exc_info=error)
        case OceanError():
            return error
        case _:
            logger.error("unexpected error in a clog's route, request %s", request_id, exc_info=error)
    return Unexpected(wrong_here(request_id))
