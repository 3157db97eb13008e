"""The errors of the Ops-Loop, with the codes of its contract: a SQLSTATE where a database would refuse."""

import json
from typing import Any

from ocean import Refuse

DUPLICATE = "23505"
NO_SUCH_REFERENCE = "23503"
CHECK_VIOLATED = "23514"
TOO_LONG = "22001"
WRONG_PARAMETER = "22023"
RAISED = "P0001"
NO_FUNCTION = "42883"
NO_TABLE = "42P01"
NO_COLUMN = "42703"

BAD_PATTERN = "OPS_001"
BAD_TEMPLATE = "OPS_002"
LEASE_LOST = "OPS_004"
WENT_STALE = "OPS_005"


def violates(message: str) -> Refuse:
    """Return the error for a value that the contract does not allow."""
    return Refuse(message, code=CHECK_VIOLATED, http_status=400)


def wrong(message: str) -> Refuse:
    return Refuse(message, code=WRONG_PARAMETER, http_status=400)


def too_long(what: str, most: int) -> Refuse:
    return Refuse(f"{what} must have at most {most} bytes; shorten it", code=TOO_LONG, http_status=400)


def check_size(value: Any, what: str, most: int) -> None:
    """Refuse a value that is too large: values that are stored together must fit into one row."""
    if len(json.dumps(value).encode()) > most:
        raise too_long(what, most)


def duplicate(constraint: str, why: str) -> Refuse:
    message = f'duplicate key value violates unique constraint "{constraint}_idx": {why}'
    return Refuse(message, code=DUPLICATE, http_status=409)


def not_found(what: str, id: str) -> Refuse:
    return Refuse(f"{what} {id} not found", code=RAISED, http_status=404)


def not_now(message: str) -> Refuse:
    """Return the error for a row whose status does not allow the call."""
    return Refuse(message, code=RAISED, http_status=409)
