"""Who may use a route: decided before anything else of a request is looked at.

A key in `Authorization: Bearer`, or a cookie that a browser got for one. While there are no keys at all, whoever asks
from this machine, by one of its loopback names, may do everything; nobody else may do anything.
"""

import hashlib
import ipaddress
from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.requests import Request

from ocean.http.framework.call import Served
from ocean.http.framework.errors import ForeignOrigin, NotAuthenticated, NotOurHost, WrongCsrfToken, WrongScope
from ocean.state.access import EVERYTHING, Access

if TYPE_CHECKING:
    from ocean.http.framework.operation import Scope

COOKIE = "ocean_session"
CSRF_TOKEN = "X-CSRF-Token"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
ELSEWHERE = frozenset({"cross-site", "same-site"})
"""`same-site` is another port of this machine, or another name under the same domain: not us."""
BY_A_PROXY = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"})
NOBODY = Access(frozenset())


async def admitted(served: Served, request: Request, scope: "Scope") -> Access:
    """What the request may do, if it may use a route of this scope."""
    if scope == "open":
        return NOBODY
    access = await identified(served, request)
    request.scope["ocean.actor"] = access.actor
    if scope != "any" and not access.may(scope):
        raise WrongScope(f"this key is not for {scope!r}; use one that is", scope=scope)
    return access


async def identified(served: Served, request: Request) -> Access:
    """By the first of these that the request has: a wrong key is not made good by a right cookie."""
    given = request.headers.getlist("authorization")
    if given:
        access = await served.ocean.access_by_key(_bearer(given))
    elif token := request.cookies.get(cookie_name(request)):
        refuse_foreign_origin(request)
        access = await served.ocean.access_by_web_session(token)
        if access is not None and request.method not in SAFE_METHODS:
            _check_csrf(request, token)
    elif await served.ocean.has_api_keys():
        raise NotAuthenticated("this needs a key: Authorization: Bearer ocean_…; `ocean keys create` makes one")
    else:
        _refuse_unless_local(served, request)
        access = EVERYTHING
    if access is None:
        raise NotAuthenticated("the key or cookie is not valid, or no longer")
    return access


def _bearer(given: list[str]) -> str:
    kind, _, key = given[0].partition(" ")
    if len(given) > 1 or kind.lower() != "bearer":
        raise NotAuthenticated("a request has one Authorization header: Bearer and a key")
    return key.strip()


def cookie_name(request: Request) -> str:
    """A browser takes a `__Host-` cookie from the very host and over TLS only, so that nobody else can plant one."""
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE


def csrf_token(token: str) -> str:
    """Known to whoever may read our answers: a page of ours, and not one that only makes the browser send a cookie."""
    return hashlib.sha256(f"csrf:{token}".encode()).hexdigest()


def _check_csrf(request: Request, token: str) -> None:
    given = request.headers.get(CSRF_TOKEN, "")
    if not compare_digest(csrf_token(token).encode(), given.encode()):
        raise WrongCsrfToken(f"a change by cookie needs the header {CSRF_TOKEN}; GET /v1/session tells it")


def refuse_foreign_origin(request: Request) -> None:
    """A browser says which page asks; where no key is shown, it has to be one of ours."""
    origin = request.headers.get("origin")
    place = None if origin is None else origin.partition("://")[2].lower()
    is_foreign = place is not None and (not place or place != request.headers.get("host", "").lower())
    if is_foreign or request.headers.get("sec-fetch-site") in ELSEWHERE:
        raise ForeignOrigin("a page from elsewhere asks; without a key only pages of this server may")


def _refuse_unless_local(served: Served, request: Request) -> None:
    """The name too: a page may have made its own name point here, and its browser asks from this machine."""
    name = request.headers.get("host", "").lower()
    host = name if name.endswith("]") else name.rpartition(":")[0] or name
    if host not in LOOPBACK_NAMES | served.hosts:
        raise NotOurHost(
            "without keys this server answers to localhost, 127.0.0.1 and [::1] only; make a key", host=host
        )
    if request.client is None or not is_loopback(request.client.host):
        raise NotAuthenticated("without keys only this machine may ask; `ocean keys create` makes one")
    if not BY_A_PROXY.isdisjoint(request.headers):
        # Behind a proxy on this machine everybody's address is loopback's, and what it says of them may be theirs.
        raise NotAuthenticated("without keys nobody may ask through a proxy; `ocean keys create` makes one")
    refuse_foreign_origin(request)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
