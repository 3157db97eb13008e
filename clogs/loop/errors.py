"""The errors of the Loop API: five codes in one envelope. An internal error shows nothing but its request id."""

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
"""The code of a status. Other 4xx are INVALID_REQUEST, 5xx are INTERNAL_ERROR."""


def request_id_of(incoming: Incoming) -> str:
    """Return the id of the request if it is a UUID, as the contract requires; otherwise a new one."""
    given = incoming.request_id
    return given if UUID.fullmatch(given) else incoming.ocean.new_id()


def refused(code: str, message: str, details: Any = None) -> CallRefused:
    return CallRefused(message, code, CODES[code], details)


def errors(refusal: OceanError, incoming: Incoming) -> Reply:
    """Return the response for any refusal on these paths. A status that the contract does not list is kept."""
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
    """Return the details with `expiresAt` in ISO 8601, as the contract requires."""
    if isinstance(details, dict) and isinstance(details.get("expiresAt"), int):
        return details | {"expiresAt": iso(details["expiresAt"])}
    return details
