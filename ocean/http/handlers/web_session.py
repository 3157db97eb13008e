"""`/v1/session`: a browser shows a key once and goes on under a cookie that its scripts cannot read.

A change needs the CSRF token too, which only a page of this server can read. The cookie ends with its key.
"""

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ocean.http.framework.authorization import COOKIE, cookie_name, csrf_token, refuse_foreign_origin
from ocean.http.framework.bodies import Body
from ocean.http.framework.call import Call
from ocean.http.framework.errors import NotAuthenticated
from ocean.http.framework.wire import Answer, record
from ocean.state.access import Access

MOST_BYTES = 1_024
"""Of who is not known yet no more is read than a key needs."""


class SessionBody(Body):
    key: str


@dataclass(frozen=True, slots=True)
class Who:
    """Who asks. `sessions` null is all of them; `csrfToken` is given to a cookie, and goes into X-CSRF-Token."""

    actor: str | None
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    sessions: tuple[str, ...] | None
    csrf_token: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """False if there was no cookie."""

    ended: bool


async def begin(call: Call) -> Response:
    body: SessionBody = call.body
    refuse_foreign_origin(call.request)
    started = await call.ocean.start_web_session(body.key)
    if started is None:
        raise NotAuthenticated("the key is not valid, or no longer")
    answer = Answer(record(_who(started.access, started.token)), 201)
    name = cookie_name(call.request)
    answer.set_cookie(name, started.token, **_flags(name))
    return answer


async def who(call: Call) -> Response:
    return Answer(record(_who(call.access, _token(call))))


async def end(call: Call) -> Response:
    token = _token(call)
    if token is None:
        return Answer(record(Ended(False)))
    answer = Answer(record(Ended(await call.ocean.end_web_session(token))))
    name = cookie_name(call.request)
    answer.delete_cookie(name, **_flags(name))
    return answer


def _token(call: Call) -> str | None:
    """None for a request that shows a key itself, whatever else it carries."""
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
