"""Around every route: an id for the request, the envelope for what was refused, silence about what went wrong."""

import logging
import re
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from ocean.http.errors import BodyTooLarge, envelope, retry_after, unexpected, unknown_route
from ocean.http.wire import Answer
from ocean.kernel.clock import Clock, SystemClock
from ocean.kernel.errors import OceanError
from ocean.kernel.ids import IdSource

REQUEST_ID = "X-Request-Id"
ACCEPTED_ID = re.compile(r"[A-Za-z0-9._~:-]{1,128}")
"""Another's id goes into logs and answers: nothing that could be taken for more than an id."""

logger = logging.getLogger("ocean.http")


class Answering:
    """Each request has an id, the caller's or ours, and every answer carries it."""

    def __init__(self, app: ASGIApp, clock: Clock | None = None) -> None:
        self._app = app
        self._clock = clock or SystemClock()
        self._ids = IdSource()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if ACCEPTED_ID.fullmatch(given) else self._ids.new(self._clock.now())
        scope["ocean.request_id"] = request_id
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass  # Nobody is left to be answered.
        except Exception:
            # The path stays out of the log: it may hold the id of a lease.
            logger.exception("unexpected error in a %s request, %s", scope["method"], request_id)
            if has_started:
                raise
            await Answer(unexpected(request_id), 500)(scope, receive, send_with_id)


def refused(request: Request, error: Exception) -> Answer:
    assert isinstance(error, OceanError)
    if error.http_status >= 500:
        logger.warning("%s in request %s: %s", error.code, request_id_of(request), error.message)
    headers = retry_after(error)
    if error.http_status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="ocean"'
    if isinstance(error, BodyTooLarge):
        # The rest of it is not read.
        headers["Connection"] = "close"
    return Answer(envelope(error, request_id_of(request)), error.http_status, headers)


def not_there(request: Request, error: Exception) -> Answer:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(allowed_methods(request))
    return Answer(unknown_route(error, request_id_of(request)), error.status_code, headers)


def allowed_methods(request: Request) -> list[str]:
    """Of every route that the path fits: `/v1/runs/cancel` is a verb for many runs, and may be one run's name."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    fitting = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in fitting for method in route.methods or ()})


HANDLERS: dict[Any, ExceptionHandler] = {OceanError: refused, HTTPException: not_there}


def request_id_of(request: Request) -> str:
    return str(request.scope["ocean.request_id"])
