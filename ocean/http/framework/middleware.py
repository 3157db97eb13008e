"""Around every route: an id for the request, the envelope for what was refused, silence about what went wrong."""

import logging
import re
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match, Route
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from ocean.http.framework.errors import BodyTooLarge, PathTooLong, envelope, retry_after, unexpected, unknown_route
from ocean.http.framework.traffic import Traffic
from ocean.http.framework.wire import Answer
from ocean.kernel.metrics import plain_code
from ocean.state.clock import Clock, SystemClock
from ocean.state.errors import OceanError
from ocean.state.ids import IdSource

REQUEST_ID = "X-Request-Id"
ACCEPTED_ID = re.compile(r"[A-Za-z0-9._~:-]{1,128}")
"""Another's id goes into logs and answers: nothing that could be taken for more than an id."""

LONGEST_PATH = 4_096
"""Of ids and names of the longest kind there is room for several. It is spelled and matched before anybody is known."""

logger = logging.getLogger("ocean.http")


class Answering:
    """Each request has an id, the caller's or ours, and every answer carries it."""

    def __init__(self, app: ASGIApp, clock: Clock | None = None, traffic: Traffic | None = None) -> None:
        self._app = app
        self._traffic = traffic or Traffic()
        self._clock = clock or SystemClock()
        self._ids = IdSource()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if ACCEPTED_ID.fullmatch(given) else self._ids.new(self._clock.now())
        scope["ocean.request_id"] = request_id
        began_at = self._clock.now()
        status: int | None = None
        is_told = False

        def tell() -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                self._traffic.answered(scope, status, max(self._clock.now() - began_at, 0))

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # A clog's contract may answer under an id of its own: a replay under the first request's.
                MutableHeaders(scope=message).setdefault(REQUEST_ID, request_id)
            await send(message)
            # Now, and not after the poke behind the answer.
            if message["type"] == "http.response.body" and not message.get("more_body"):
                tell()

        try:
            app = _too_long(request_id) if _length(scope) > LONGEST_PATH else self._app
            await app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass  # Nobody is left to be answered.
        except Exception:
            # The path stays out of the log: it may hold the id of a lease.
            logger.exception("unexpected error in a %s request, %s", scope["method"], request_id)
            if status is not None:
                raise
            await Answer(unexpected(request_id), 500)(scope, receive, send_with_id)
        finally:
            tell()


def _length(scope: Scope) -> int:
    return len(scope.get("raw_path") or scope["path"])


def _too_long(request_id: str) -> Answer:
    error = PathTooLong(f"the path is over {LONGEST_PATH} bytes; ids are far shorter", most_bytes=LONGEST_PATH)
    return Answer(envelope(error, request_id), error.http_status)


def refused(request: Request, error: Exception) -> Answer:
    assert isinstance(error, OceanError)
    if error.http_status >= 500:
        # Without the message, which may be a clog's own.
        logger.warning("%s in request %s", plain_code(error.code), request_id_of(request))
    return Answer(envelope(error, request_id_of(request)), error.http_status, headers_of(error))


def headers_of(error: OceanError) -> dict[str, str]:
    headers = retry_after(error)
    if error.http_status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="ocean"'
    if isinstance(error, BodyTooLarge):
        # The rest of it is not read.
        headers["Connection"] = "close"
    return headers


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
