"""Around every route: the request id, the error response, the access log and the counts of requests."""

import logging
import re
from collections import Counter
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from ocean.http.framework.errors import BodyTooLarge, PathTooLong, envelope, retry_after, unexpected, unknown_route
from ocean.http.framework.responses import JsonResponse
from ocean.kernel.tick_log import fields
from ocean.state.clock import Clock, SystemClock
from ocean.state.errors import OceanError
from ocean.state.ids import IdSource
from ocean.state.outcomes import plain_code

REQUEST_ID = "X-Request-Id"
ACCEPTED_ID = re.compile(r"[A-Za-z0-9._~:-]{1,128}")
"""A caller's id is written to logs and responses, so it must not contain anything that could be read as more."""

LONGEST_PATH = 4_096
"""Long enough for several ids of the greatest length. The path is parsed before the sender is authenticated."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
GONE = "gone"
"""In place of a status: the caller disconnected before the response began."""

logger = logging.getLogger("ocean.http")


class Traffic:
    """Counts and logs the requests of one application by route, method and status.

    The route is the template, never the path: a path may contain the id of a lease, which is a secret.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()

    def record(self, scope: Scope, status: int | None, ms: int) -> None:
        """Count one request and write a line to the access log."""
        method = scope["method"] if scope["method"] in METHODS else OTHER
        route, shown_status = route_of(scope), GONE if status is None else str(status)
        self.requests[route, method, shown_status] += 1
        if logger.isEnabledFor(logging.INFO):
            request_id, actor = scope["ocean.request_id"], scope.get("ocean.actor")
            extra = fields(method=method, route=route, status=shown_status, ms=ms, request_id=request_id, actor=actor)
            logger.info("request", extra=extra)


def route_of(scope: Scope) -> str:
    """Return the route's template; all paths without a route share one name."""
    found = scope.get("ocean.route") or getattr(scope.get("route"), "path", None)
    return found if isinstance(found, str) else OTHER


class RequestMiddleware:
    """Gives each request an id, the caller's or a new one, and returns it in the response."""

    def __init__(self, app: ASGIApp, clock: Clock | None = None, traffic: Traffic | None = None) -> None:
        self._app = app
        self._traffic = traffic or Traffic()
        self._clock = clock or SystemClock()
        self._ids = IdSource()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; an unexpected error becomes a response with status 500."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if ACCEPTED_ID.fullmatch(given) else self._ids.new(self._clock.now())
        scope["ocean.request_id"] = request_id
        began_at = self._clock.now()
        status: int | None = None
        is_recorded = False

        def record() -> None:
            nonlocal is_recorded
            if not is_recorded:
                is_recorded = True
                self._traffic.record(scope, status, max(self._clock.now() - began_at, 0))

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A clog's route may set its own id: a replayed response carries the id of the first request.
                MutableHeaders(scope=message).setdefault(REQUEST_ID, request_id)
            await send(message)
            # Here rather than at the end, so that the poke after the response is not part of the duration.
            if message["type"] == "http.response.body" and not message.get("more_body"):
                record()

        try:
            app = _too_long(request_id) if _length(scope) > LONGEST_PATH else self._app
            await app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass  # There is no connection left to respond on.
        except Exception:
            # The path is not logged: it may contain the id of a lease.
            logger.exception("unexpected error in a %s request, %s", scope["method"], request_id)
            if status is not None:
                raise
            await JsonResponse(unexpected(request_id), 500)(scope, receive, send_with_id)
        finally:
            record()


def _length(scope: Scope) -> int:
    return len(scope.get("raw_path") or scope["path"])


def _too_long(request_id: str) -> JsonResponse:
    error = PathTooLong(f"the path must be at most {LONGEST_PATH} bytes", most_bytes=LONGEST_PATH)
    return JsonResponse(envelope(error, request_id), error.http_status)


def error_response(request: Request, error: Exception) -> JsonResponse:
    """Return the response for an error that Ocean raised."""
    assert isinstance(error, OceanError)
    if error.http_status >= 500:
        # Without the message, which may be a clog's own.
        logger.warning("%s in request %s", plain_code(error.code), request_id_of(request))
    return JsonResponse(envelope(error, request_id_of(request)), error.http_status, headers_of(error))


def headers_of(error: OceanError) -> dict[str, str]:
    """Return the headers that the response for an error needs."""
    headers = retry_after(error)
    if error.http_status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="ocean"'
    if isinstance(error, BodyTooLarge):
        # The rest of the body is not read.
        headers["Connection"] = "close"
    return headers


def unknown_route_response(request: Request, error: Exception) -> JsonResponse:
    """Return the response for a path or method that no route has."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(allowed_methods(request))
    return JsonResponse(unknown_route(error, request_id_of(request)), error.status_code, headers)


def allowed_methods(request: Request) -> list[str]:
    """Return the methods of all routes that match the path.

    There may be several: `/v1/runs/cancel` is a bulk verb, and also matches the route of a run named `cancel`.
    """
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    matching = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


EXCEPTION_HANDLERS: dict[Any, ExceptionHandler] = {OceanError: error_response, HTTPException: unknown_route_response}


def request_id_of(request: Request) -> str:
    """Return the id that the middleware gave to the request."""
    return str(request.scope["ocean.request_id"])
