"""Five codes, one envelope, and no more about what went wrong than its request's id."""

import re
from typing import Any

from clogs.loop.schemas import RUN_NEXT_STEP, iso
from ocean import CallRefused, Incoming, OceanError, Reply

REQUEST_ID = "X-Request-Id"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
CODES = {
    "INVALID_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "ISSUE_NOT_FOUND": 404,
    "LOOP_CONFLICT": 409,
    "INTERNAL_ERROR": 500,
}
NEAREST = {401: "UNAUTHORIZED", 403: "UNAUTHORIZED", 404: "ISSUE_NOT_FOUND", 409: "LOOP_CONFLICT"}
"""The code of a status; every other refusal is an invalid request, and what is unexpected an internal error."""


def request_id_of(incoming: Incoming) -> str:
    """The request's, if it is a UUID as the contract has it; the sender may have chosen something else."""
    given = incoming.request_id
    return given if UUID.fullmatch(given) else incoming.ocean.new_id()


def refused(code: str, message: str, details: Any = None) -> CallRefused:
    return CallRefused(message, code, CODES[code], details)


def errors(refusal: OceanError, incoming: Incoming) -> Reply:
    """Every refusal on these paths, whoever makes it. What the table of the contract has not keeps its status."""
    status = 500 if refusal.http_status >= 500 else 400 if refusal.http_status == 422 else refusal.http_status
    nearest = NEAREST.get(status, "INTERNAL_ERROR" if status == 500 else "INVALID_REQUEST")
    code = refusal.code if refusal.code in CODES else nearest
    request_id = request_id_of(incoming)
    error: dict[str, Any] = {"code": code, "message": refusal.message}
    details = refusal.details if status < 500 else None
    if details:
        error["details"] = _dated(details)
    body = {
        "schemaVersion": RUN_NEXT_STEP,
        "requestId": request_id,
        "error": error,
        "timestamp": iso(incoming.ocean.clock.now()),
    }
    return Reply(body, status, {REQUEST_ID: request_id})


def _dated(details: Any) -> Any:
    """Times are kept in milliseconds, and told as the contract tells them."""
    if isinstance(details, dict) and isinstance(details.get("expiresAt"), int):
        return details | {"expiresAt": iso(details["expiresAt"])}
    return details
