"""The errors that HTTP raises before the kernel is called, and the JSON envelope of every error."""

import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from ocean.http.framework.responses import camel
from ocean.state.errors import CallRefused, OceanError

LONGEST_MESSAGE = 1_000
RETRY_AFTER_S = 1
CODES = {
    404: ("not_found", "there is no route with this path; GET /docs lists all routes"),
    405: ("method_not_allowed", "this path has other methods, named in the header Allow; GET /docs describes them"),
}


class NotJson(OceanError):
    """The body is not JSON, or an object in it has a duplicate key."""

    code = "not_json"
    http_status = 400


class InvalidBody(OceanError):
    """The body does not fit the route's model. Details: fields, each with its problem."""

    code = "invalid_body"
    http_status = 400


class InvalidQuery(OceanError):
    """The query string does not fit the route's model. Details: fields, each with its problem."""

    code = "invalid_query"
    http_status = 400


class KeyNotTaken(OceanError):
    """The route does not accept an Idempotency-Key."""

    code = "idempotency_key_not_taken"
    http_status = 400


class RequestRunning(OceanError):
    """Another request with the same Idempotency-Key is still running."""

    code = "request_running"
    http_status = 409
    retryable = True


class NotAuthenticated(OceanError):
    """There is no key, or it is unknown, revoked or expired; the response does not reveal which."""

    code = "not_authenticated"
    http_status = 401


class WrongScope(OceanError):
    """The key is valid but does not have the route's scope. Details: scope, the one that is needed."""

    code = "wrong_scope"
    http_status = 403


class WrongCsrfToken(OceanError):
    """A change with a cookie has no CSRF token, or a wrong one."""

    code = "wrong_csrf_token"
    http_status = 403


class ForeignOrigin(OceanError):
    """A browser sent the request for a page of another origin, without a key."""

    code = "foreign_origin"
    http_status = 403


class NotOurHost(OceanError):
    """The Host header has a name that this server does not accept without keys. Details: host."""

    code = "not_our_host"
    http_status = 421


class MethodNotAllowed(OceanError):
    """The path has no such method."""

    code = "method_not_allowed"
    http_status = 405


class Unexpected(OceanError):
    """An unexpected error. The message does not reveal the cause."""

    code = "internal"
    http_status = 500


class NotAcceptable(OceanError):
    """The client accepts only a stream, and this server does not stream."""

    code = "not_acceptable"
    http_status = 406


class ServerNotReady(OceanError):
    """Due runs have waited for too long: nothing pokes, or not often enough."""

    code = "not_ready"
    http_status = 503
    retryable = True


class BodyTooLarge(OceanError):
    """The body is longer than the route accepts. Details: most_bytes."""

    code = "body_too_large"
    http_status = 413


class PathTooLong(OceanError):
    """The path is longer than any route needs. Details: most_bytes."""

    code = "path_too_long"
    http_status = 414


class WrongContentType(OceanError):
    """The Content-Type is not the one that the route accepts."""

    code = "wrong_content_type"
    http_status = 415


def envelope(error: OceanError, request_id: str) -> dict[str, Any]:
    """Return the JSON of an error. Names in the details become camelCase, except those that a clog chose."""
    details = error.details
    if isinstance(details, Mapping) and not isinstance(error, CallRefused):
        details = {camel(name): value for name, value in details.items()}
    return _envelope(error.code, error.message, error.http_status, error.retryable, request_id, details)


def unknown_route(error: HTTPException, request_id: str) -> dict[str, Any]:
    """Return the JSON for an unknown path or method. It does not contain the path, which may contain a secret."""
    code, message = CODES.get(error.status_code, ("http_error", error.detail))
    return _envelope(code, message, error.status_code, False, request_id, {})


def unexpected(request_id: str) -> dict[str, Any]:
    """Return the JSON for an unexpected error. The cause is only in the log, under the same request id."""
    return _envelope("internal", internal_message(request_id), 500, False, request_id, {})


def internal_message(request_id: str) -> str:
    """Return the message of an unexpected error."""
    return f"an unexpected error occurred; the server's log has it under request {request_id}"


def retry_after(error: OceanError) -> dict[str, str]:
    """Return the Retry-After header for an error that passes with time; a conflict does not, it needs a new read."""
    if not error.retryable or error.http_status not in (429, 503):
        return {}
    wait_ms = error.details.get("retry_after_ms") if isinstance(error.details, Mapping) else None
    return {"Retry-After": str(math.ceil(wait_ms / 1000) if isinstance(wait_ms, int) else RETRY_AFTER_S)}


def _envelope(code: str, message: str, status: int, retryable: bool, request_id: str, details: Any) -> dict[str, Any]:
    return {
        "error": {
            "code": code,
            "message": message[:LONGEST_MESSAGE],
            "httpStatus": status,
            "retryable": retryable,
            "requestId": request_id,
            "details": details,
        }
    }
