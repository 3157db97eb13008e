"""Authentication and scopes: decided before any other part of a request is read.

A request authenticates with a key in `Authorization: Bearer`, or with the cookie that a browser got for a key. While a
database has no keys, requests from this machine under one of its loopback names may do everything, and all others are
refused.
"""

import hashlib
import ipaddress
from hmac import compare_digest
from typing import TYPE_CHECKING

from starlette.requests import Request

from ocean.http.framework.call import ServerState
from ocean.http.framework.errors import ForeignOrigin, NotAuthenticated, NotOurHost, WrongCsrfToken, WrongScope
from ocean.state.records import EVERYTHING, Access

if TYPE_CHECKING:
    from ocean.http.framework.routing import Scope

COOKIE = "ocean_session"
CSRF_TOKEN = "X-CSRF-Token"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""`same-site` is another port of this machine or another name under the same domain, so it is foreign too."""
PROXY_HEADERS = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"})
NO_ACCESS = Access(frozenset())


async def authorize(server: ServerState, request: Request, scope: "Scope") -> Access:
    """Return what the sender may do, or raise if the sender may not use a route of this scope."""
    if scope == "open":
        return NO_ACCESS
    access = await authenticate(server, request)
    request.scope["ocean.actor"] = access.actor
    if scope != "any" and not access.may(scope):
        raise WrongScope(f"the key must have the scope {scope!r}; use one that has it", scope=scope)
    return access


async def authenticate(server: ServerState, request: Request) -> Access:
    """Return what the sender may do, by the first credential in the request.

    An invalid key is refused even if the request also has a valid cookie.
    """
    given = request.headers.getlist("authorization")
    if given:
        access = await server.ocean.access_by_key(_bearer(given))
    elif token := request.cookies.get(cookie_name(request)):
        refuse_foreign_origin(request)
        access = await server.ocean.access_by_web_session(token)
        if access is not None and request.method not in SAFE_METHODS:
            _check_csrf(request, token)
    elif await server.ocean.has_api_keys():
        raise NotAuthenticated(
            "the request must have a key: Authorization: Bearer ocean_…; `ocean keys create` creates one"
        )
    else:
        _refuse_unless_local(server, request)
        access = EVERYTHING
    if access is None:
        raise NotAuthenticated("the key or cookie is not valid, or no longer valid")
    return access


def _bearer(given: list[str]) -> str:
    kind, _, key = given[0].partition(" ")
    if len(given) > 1 or kind.lower() != "bearer":
        raise NotAuthenticated("the request must have one Authorization header: Bearer and a key")
    return key.strip()


def cookie_name(request: Request) -> str:
    """Return the cookie's name. Browsers accept a `__Host-` cookie only from that host itself and over TLS."""
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE


def csrf_token(token: str) -> str:
    """Return the CSRF token of a web session. Only a page that may read this server's responses can know it."""
    return hashlib.sha256(f"csrf:{token}".encode()).hexdigest()


def _check_csrf(request: Request, token: str) -> None:
    given = request.headers.get(CSRF_TOKEN, "")
    if not compare_digest(csrf_token(token).encode(), given.encode()):
        raise WrongCsrfToken(
            f"a change with a cookie must have the header {CSRF_TOKEN}; GET /v1/session returns its value"
        )


def refuse_foreign_origin(request: Request) -> None:
    """Refuse a request that a browser sends for a page of another origin; for requests without a key."""
    origin = request.headers.get("origin")
    host = None if origin is None else origin.partition("://")[2].lower()
    is_foreign = host is not None and (not host or host != request.headers.get("host", "").lower())
    if is_foreign or request.headers.get("sec-fetch-site") in FOREIGN_SITES:
        raise ForeignOrigin("a request from a page of another origin must have a key")


def _refuse_unless_local(server: ServerState, request: Request) -> None:
    """Refuse requests from elsewhere, by address and by name.

    The name is checked against DNS rebinding: a page can make its own name resolve to this machine.
    """
    name = request.headers.get("host", "").lower()
    host = name if name.endswith("]") else name.rpartition(":")[0] or name
    if host not in LOOPBACK_NAMES | server.hosts:
        raise NotOurHost(
            "without keys the host must be localhost, 127.0.0.1 or [::1]; `ocean keys create` creates a key", host=host
        )
    if request.client is None or not is_loopback(request.client.host):
        raise NotAuthenticated("without keys a request must come from this machine; `ocean keys create` creates a key")
    if not PROXY_HEADERS.isdisjoint(request.headers):
        # Behind a proxy on this machine every address is a loopback address, and the headers may be the client's own.
        raise NotAuthenticated("without keys a request must not pass a proxy; `ocean keys create` creates a key")
    refuse_foreign_origin(request)


def is_loopback(host: str) -> bool:
    """Return whether an address or name is of this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
