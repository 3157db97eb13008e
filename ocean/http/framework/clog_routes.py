"""The routes that clogs mount: authorized, limited and parsed like Ocean's own; responses and errors are the clog's."""

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
from ocean.http.framework.authorization import authorize
from ocean.http.framework.call import Poker, ServerState
from ocean.http.framework.errors import MethodNotAllowed, Unexpected, internal_message
from ocean.http.framework.idempotency import RunningRequests, given_key
from ocean.http.framework.middleware import allowed_methods, error_response, headers_of, request_id_of
from ocean.http.framework.parsing import check_content_type, checked_body, parse_json, read_bytes, read_clog_query
from ocean.http.framework.responses import SAFE_HEADERS
from ocean.http.framework.routing import EscapedPathRoute
from ocean.kernel.invoke import invoke
from ocean.state.errors import CallRefused, ClogError, OceanError, Refuse
from ocean.state.outcomes import plain_code
from ocean.state.records import Access
from ocean.state.values import shown

NO_BODY = (204, 304)
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
VALUE = re.compile(r"[\t -~\xa0-\xff]*")
FRAMING = frozenset({"connection", "content-length", "transfer-encoding"})
SECRET_HEADERS = frozenset({"authorization", "cookie"})

logger = logging.getLogger("ocean.http")


class ClogRoute(EscapedPathRoute):
    """The methods of one path of a clog. For a missing method the clog writes the error too."""

    def __init__(
        self, routes: Mapping[str, Route], server: ServerState, poker: Poker | None, running: RunningRequests
    ) -> None:
        self._first = next(iter(routes.values()))
        self._server = server
        # Request paths are escaped before they are matched, so the fixed parts of this path are escaped too.
        parts = re.split("({[^}]*})", self._first.path)
        path = "".join(part if part.startswith("{") else quote(part) for part in parts)
        super().__init__(path, _endpoint(routes, server, poker, running), methods=[*routes])

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the endpoint, or respond with 405 in the clog's form."""
        scope["ocean.route"] = self._first.path
        if scope["method"] in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive)
        allowed = ", ".join(allowed_methods(request))
        error = MethodNotAllowed(f"the method must be one of {allowed}, got {scope['method']}")
        response = clog_error_response(self._first.errors, error, incoming_of(self._server, request), request)
        response.headers["Allow"] = allowed
        await response(scope, receive, send)


def make_clog_routes(routes: Sequence[Route], server: ServerState, poker: Poker | None) -> list[ClogRoute]:
    """Return one route per path of the clogs, with all its methods."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    running = RunningRequests()
    return [ClogRoute(methods, server, poker, running) for methods in by_path.values()]


def _endpoint(
    routes: Mapping[str, Route], server: ServerState, poker: Poker | None, running: RunningRequests
) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        route = routes["GET" if request.method == "HEAD" else request.method]
        incoming = incoming_of(server, request, shows_keys=route.access == "open" or callable(route.access))
        is_handled = False
        try:
            guard = Guard(server.ocean, await _access(route, server, request, incoming))
            incoming = _with_access(route, incoming, guard)
            given = given_key(request, route.path, None if route.keyed else "")
            incoming = replace(incoming, request_key=_request_key(route, guard, given))
            if route.check is not None:
                await invoke(route.check, incoming)
            incoming = replace(incoming, raw=await read_bytes(request, route.most_bytes))
            incoming = _parsed(route, request, incoming)
            is_handled = True
            with running.reserve(None if route.keyed == "own" else incoming.request_key):
                response = rendered(await invoke(route.handler, incoming))
        except ClientDisconnect:
            raise
        except Exception as error:
            response = clog_error_response(route.errors, error, incoming, request)
        if is_handled and poker is not None and route.method != "GET":
            response.background = BackgroundTask(poker)
        return response

    return respond


async def _access(route: Route, server: ServerState, request: Request, incoming: Incoming) -> Access:
    assert route.access is not None, "a server does not start with a route without an access policy"
    if not callable(route.access):
        return await authorize(server, request, route.access)
    access = await invoke(route.access, incoming)
    if not isinstance(access, Access):
        raise ClogError(f"the access policy of {route.name} must return an Access, got {shown(access)}")
    request.scope["ocean.actor"] = access.actor
    return access


def incoming_of(server: ServerState, request: Request, shows_keys: bool = False) -> Incoming:
    """Return the request as a clog sees it, before its body is read and without Ocean's keys."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        if shows_keys or name not in SECRET_HEADERS:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Incoming(
        ocean=server.ocean,
        method=request.method,
        path={name: str(value) for name, value in request.path_params.items()},
        pairs=tuple(request.query_params.multi_items()),
        headers=headers,
        request_id=request_id_of(request),
        parse=parse_json,
    )


def _with_access(route: Route, incoming: Incoming, guard: Guard) -> Incoming:
    if route.access == "open":
        return replace(incoming, access=ANONYMOUS)
    if route.session is None:
        guard.check_unlimited()
    elif route.session != CHECKED:
        guard.check_session(incoming.path[route.session])
    return replace(incoming, access=guard.access)


def _request_key(route: Route, guard: Guard, key: str | None) -> str | None:
    """Return the Idempotency-Key with its sender's prefix. Senders without a name share a prefix of their own."""
    is_anonymous = guard.access.actor is None and (route.access == "open" or callable(route.access))
    return f"0::{key}" if is_anonymous and key is not None else guard.request_key(key)


def _parsed(route: Route, request: Request, incoming: Incoming) -> Incoming:
    """Parse the query string and the body. An empty body counts as an empty object, which the model may refuse."""
    if incoming.raw and route.content_type is not None:
        check_content_type(request, route.content_type)
    query = read_clog_query(incoming.pairs, route.query) if route.query else None
    body = checked_body(parse_json(incoming.raw) if incoming.raw else {}, route.body) if route.body else None
    return replace(incoming, query=query, body=body)


def rendered(result: Any, status: int = 200) -> Response:
    """Return a handler's result as a response, or raise `ClogError` if it is not JSON, bytes or a model."""
    reply = result if isinstance(result, Reply) else Reply(result, status)
    headers = {**SAFE_HEADERS}
    for name, value in reply.headers.items():
        if not HEADER.fullmatch(name) or name.lower() in FRAMING or not VALUE.fullmatch(value):
            raise ClogError(f"a reply must not have the header {shown(name)}")
        headers = {kept: other for kept, other in headers.items() if kept.lower() != name.lower()} | {name: value}
    if isinstance(reply.status, bool) or not isinstance(reply.status, int) or not 200 <= reply.status <= 599:
        raise ClogError(f"a reply's status must be between 200 and 599, got {shown(reply.status)}")
    if reply.status in NO_BODY:
        return Response(None, reply.status, headers)
    if isinstance(reply.content, bytes):
        return Response(reply.content, reply.status, headers)
    text = json.dumps(reply.content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_dumped)
    return Response(text.encode("utf-8", "replace"), reply.status, headers, "application/json")


def _dumped(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    raise ClogError(f"a reply must be JSON, bytes or a model, got {shown(value)} in it")


def clog_error_response(errors: Errors | None, error: Exception, incoming: Incoming, request: Request) -> Response:
    """Return the response for an error in the clog's form, or in Ocean's; unexpected errors are only logged."""
    shown_error = _shown_error(error, incoming.request_id)
    if errors is None:
        return error_response(request, shown_error)
    if shown_error.http_status >= 500 and shown_error is error:
        # Without the message, which may be a clog's own.
        logger.warning("%s in request %s", plain_code(shown_error.code), incoming.request_id)
    response = rendered(errors(shown_error, incoming), shown_error.http_status)
    for name, value in headers_of(shown_error).items():
        response.headers.setdefault(name, value)
    return response


def _shown_error(error: Exception, request_id: str) -> OceanError:
    """Return the error that the caller may see; any other is logged and replaced by `Unexpected`."""
    match error:
        case Refuse():
            return CallRefused(error.message, error.code, error.http_status, error.details)
        case ClogError():
            logger.error("a clog's route violated the clog contract, request %s", request_id, exc_info=error)
        case OceanError():
            return error
        case _:
            logger.error("unexpected error in a clog's route, request %s", request_id, exc_info=error)
    return Unexpected(internal_message(request_id))
