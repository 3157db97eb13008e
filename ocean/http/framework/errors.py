"""What HTTP refuses by itself, before the kernel is asked; and the one envelope of every refusal."""

import math
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException

from ocean.http.framework.wire import camel
from ocean.state.errors import CallRefused, OceanError

LONGEST_MESSAGE = 1_000
RETRY_AFTER_S = 1
CODES = {
    404: ("not_found", "there is nothing at this path; GET /docs lists all that there is"),
    405: ("method_not_allowed", "this path takes other methods; the header Allow names them, GET /docs what they do"),
}


class NotJson(OceanError):
    """The body is no JSON, or JSON that says one thing twice."""

    code = "not_json"
    http_status = 400


class InvalidBody(OceanError):
    """The body has not the fields that the route takes. Details: fields, each with its problem."""

    code = "invalid_body"
    http_status = 400


class InvalidQuery(OceanError):
    """The query string has names or values that the route does not take. Details: fields, each with its problem."""

    code = "invalid_query"
    http_status = 400


class KeyNotTaken(OceanError):
    """An Idempotency-Key where there is no place to keep an answer under it."""

    code = "idempotency_key_not_taken"
    http_status = 400


class RequestRunning(OceanError):
    """The same Idempotency-Key as a request that is still at work."""

    code = "request_running"
    http_status = 409
    retryable = True


class NotAuthenticated(OceanError):
    """No key, or one that is not known, revoked or expired: which of these it is, is not told."""

    code = "not_authenticated"
    http_status = 401


class WrongScope(OceanError):
    """The key is good, but not for this. Details: scope, which is the one needed."""

    code = "wrong_scope"
    http_status = 403


class WrongCsrfToken(OceanError):
    code = "wrong_csrf_token"
    http_status = 403


class ForeignOrigin(OceanError):
    code = "foreign_origin"
    http_status = 403


class NotOurHost(OceanError):
    """The Host header names somebody else. Details: host."""

    code = "not_our_host"
    http_status = 421


class MethodNotAllowed(OceanError):
    code = "method_not_allowed"
    http_status = 405


class Unexpected(OceanError):
    """Says nothing of the cause."""

    code = "internal"
    http_status = 500


class NotAcceptable(OceanError):
    code = "not_acceptable"
    http_status = 406


class NotReady(OceanError):
    """Due work is older than it should ever be: nobody pokes, or not enough."""

    code = "not_ready"
    http_status = 503
    retryable = True


class BodyTooLarge(OceanError):
    code = "body_too_large"
    http_status = 413


class PathTooLong(OceanError):
    code = "path_too_long"
    http_status = 414


class WrongContentType(OceanError):
    code = "wrong_content_type"
    http_status = 415


def envelope(error: OceanError, request_id: str) -> dict[str, Any]:
    """`CallRefused` carries what a clog said, and that is not ours to respell."""
    details = error.details
    if isinstance(details, Mapping) and not isinstance(error, CallRefused):
        details = {camel(name): value for name, value in details.items()}
    return _envelope(error.code, error.message, error.http_status, error.retryable, request_id, details)


def unknown_route(error: HTTPException, request_id: str) -> dict[str, Any]:
    """What Starlette refuses: a path or a method that is not there. The path is not repeated: it may hold a secret."""
    code, message = CODES.get(error.status_code, ("http_error", error.detail))
    return _envelope(code, message, error.status_code, False, request_id, {})


def unexpected(request_id: str) -> dict[str, Any]:
    """Says nothing of the cause: that is in the log, under the same id."""
    return _envelope("internal", wrong_here(request_id), 500, False, request_id, {})


def wrong_here(request_id: str) -> str:
    return f"something went wrong here; the log has it under request {request_id}"


def retry_after(error: OceanError) -> dict[str, str]:
    """A header for those who need only wait. A conflict needs another look instead."""
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
