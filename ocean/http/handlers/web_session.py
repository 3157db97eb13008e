"""`/v1/session`: a browser sends a key once and then uses a cookie that scripts cannot read.

A change also needs the CSRF token, which only a page of this server can read. The cookie expires with its key.
"""

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ocean.http.framework.authorization import COOKIE, cookie_name, csrf_token, refuse_foreign_origin
from ocean.http.framework.call import HandlerCall
from ocean.http.framework.errors import NotAuthenticated
from ocean.http.framework.parsing import Body
from ocean.http.framework.responses import JsonResponse, record
from ocean.state.records import Access

MOST_BYTES = 1_024
"""The sender is not authenticated yet, so no more is read than a key needs."""


class SessionBody(Body):
    key: str


@dataclass(frozen=True, slots=True)
class Who:
    """The sender. `sessions` null means all sessions; `csrfToken`, only with a cookie, is for X-CSRF-Token."""

    actor: str | None
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    sessions: tuple[str, ...] | None
    csrf_token: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """False if the request had no cookie."""

    ended: bool


async def begin(call: HandlerCall) -> Response:
    """Exchange a key for a cookie."""
    body: SessionBody = call.body
    refuse_foreign_origin(call.request)
    started = await call.ocean.start_web_session(body.key)
    if started is None:
        raise NotAuthenticated("the key is not valid, or no longer valid")
    response = JsonResponse(record(_who(started.access, started.token)), 201)
    name = cookie_name(call.request)
    response.set_cookie(name, started.token, **_flags(name))
    return response


async def who(call: HandlerCall) -> Response:
    """Respond with the sender's name and permissions."""
    return JsonResponse(record(_who(call.access, _token(call))))


async def end(call: HandlerCall) -> Response:
    """End the session of the cookie and delete the cookie."""
    token = _token(call)
    if token is None:
        return JsonResponse(record(Ended(False)))
    response = JsonResponse(record(Ended(await call.ocean.end_web_session(token))))
    name = cookie_name(call.request)
    response.delete_cookie(name, **_flags(name))
    return response


def _token(call: HandlerCall) -> str | None:
    """Return the cookie's token; None for a request that has a key itself."""
    if "authorization" in call.request.headers:
        return None
    return call.request.cookies.get(cookie_name(call.request))


def _who(access: Access, token: str | None) -> Who:
    return Who(
        access.actor,
        access.roles,
        tuple(sorted(access.scopes)),
        None if access.sessions is None else tuple(sorted(access.sessions)),
        None if token is None else csrf_token(token),
    )


def _flags(name: str) -> dict[str, Any]:
    return {"path": "/", "secure": name != COOKIE, "httponly": True, "samesite": "strict"}
