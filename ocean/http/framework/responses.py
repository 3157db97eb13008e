"""Records as they travel: names in camelCase; what users stored is passed on letter by letter."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic.alias_generators import to_camel
from starlette.responses import Response


def camel(name: str) -> str:
    return to_camel(name)


def record(value: Any) -> Any:
    """A record of the kernel as JSON values. Only its own fields are respelled, never the keys of a user's object."""
    if is_dataclass(value) and not isinstance(value, type):
        return {camel(field.name): record(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [record(item) for item in value]
    return value


GUARDED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Answer(Response):
    """JSON, compact, and not for caches: answers to workers carry secrets. Nor for a browser to take for a page."""

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: dict[str, str] | None = None) -> None:
        super().__init__(content, status_code, GUARDED | (headers or {}))

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
        # A message may quote a lone surrogate that somebody sent.
        return text.encode("utf-8", "replace")
