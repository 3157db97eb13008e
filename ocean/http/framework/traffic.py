"""Requests, counted and logged by the template of their route. A path may hold the id of a lease: it is never said."""

import logging
from collections import Counter

from starlette.types import Scope

from ocean.kernel.metrics import fields

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
GONE = "gone"
"""Instead of a status: the caller left before there was one."""

log = logging.getLogger("ocean.http")


class Traffic:
    """Of one application: how often each route was asked, by method and status."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()

    def answered(self, scope: Scope, status: int | None, ms: int) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        route, said = route_of(scope), GONE if status is None else str(status)
        self.requests[route, method, said] += 1
        if log.isEnabledFor(logging.INFO):
            request_id, actor = scope["ocean.request_id"], scope.get("ocean.actor")
            told = fields(method=method, route=route, status=said, ms=ms, request_id=request_id, actor=actor)
            log.info("request", extra=told)


def route_of(scope: Scope) -> str:
    """As the table has it. What is not there has one name, however many of it are asked for."""
    found = scope.get("ocean.route") or getattr(scope.get("route"), "path", None)
    return found if isinstance(found, str) else OTHER
