"""JSON responses: the kernel's records with names in camelCase; values that users stored are not changed."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic.alias_generators import to_camel
from starlette.responses import Response

SAFE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def camel(name: str) -> str:
    """Return a field's name in camelCase."""
    return to_camel(name)


def record(value: Any) -> Any:
    """Convert a record of the kernel to JSON values. Only its field names become camelCase, never a user's keys."""
    if is_dataclass(value) and not isinstance(value, type):
        return {camel(field.name): record(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [record(item) for item in value]
    return value


class JsonResponse(Response):
    """Compact JSON that must not be cached or sniffed: responses to workers contain secrets."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(content, status_code, SAFE_HEADERS | (headers or {}))

    def render(self, content: Any) -> bytes:
        """Return the content as UTF-8."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
        # An error message may quote a lone surrogate from the request.
        return text.encode("utf-8", "replace")
