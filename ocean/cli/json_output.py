"""Records as `--json` prints them: with the field names of the HTTP API; values that users stored are unchanged."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from ocean import AdvanceResult, CallRefused, ErrorInfo, Event, OceanError
from ocean.cli.server_errors import ServerRefused
from ocean.state.dry_run_result import DryRun
from ocean.state.outcomes import outcome_name


def record(value: Any) -> Any:
    """Return a record as plain JSON values. Only Ocean's own field names become camelCase, never a user's keys."""
    if isinstance(value, list | tuple):
        return [record(item) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    shown = {to_camel(field.name): record(getattr(value, field.name)) for field in fields(value)}
    match value:
        case Event():
            return {"id": value.id, **shown}
        case ErrorInfo():
            return value.as_json()
        case AdvanceResult():
            return {"advanced": value.advanced, **shown}
        case DryRun() if value.outcome is not None:
            return {**shown, "outcome": {"type": outcome_name(value.outcome), **shown["outcome"]}}
        case _:
            return shown


def line(value: Any) -> str:
    """Return the record as one line of ASCII JSON."""
    return json.dumps(record(value), ensure_ascii=True, allow_nan=False, default=str)


def envelope(error: OceanError) -> dict[str, Any]:
    """Return the error as the HTTP API does. `requestId` is None unless the error came from a server."""
    if isinstance(error, ServerRefused):
        return error.envelope
    details = error.details
    if not isinstance(error, CallRefused):
        details = {to_camel(name): value for name, value in details.items()}
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "httpStatus": error.http_status,
            "retryable": error.retryable,
            "requestId": None,
            "details": details,
        }
    }
