"""Calls of ticks to services outside: a record of each, and a file format for them."""

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ocean.tools.fetch import FetchRequest, FetchResponse

HARMLESS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class OutsideCall:
    """A call. `name` is the method and URL of a request, the clog and name of a step, or the name for `Outside.call`.

    `is_repeat`: the key was used before, so the first answer was given again and there was no second effect.
    """

    kind: Literal["fetch", "step", "call"]
    name: str
    body: Any
    key: str | None
    answer: Any
    is_repeat: bool = False

    @property
    def is_effect(self) -> bool:
        """Whether it changed something outside. A step is no effect by itself: the calls of its function are."""
        is_reading = self.kind == "fetch" and self.name.split(" ")[0] in HARMLESS
        return self.kind != "step" and not is_reading and not self.is_repeat


def save_calls(path: Path, calls: Iterable[OutsideCall]) -> None:
    """Write calls to a file."""
    path.write_text(json.dumps([asdict(call) for call in calls], indent=1, ensure_ascii=False) + "\n")


def load_calls(path: Path) -> list[OutsideCall]:
    """Read calls from a file."""
    return [OutsideCall(**each) for each in json.loads(path.read_text())]


def request_name(request: FetchRequest) -> str:
    """Return the method and URL."""
    return f"{request.method} {request.url}"


def request_key(request: FetchRequest) -> str | None:
    """Return the idempotency key."""
    return next((value for name, value in request.headers.items() if name.lower() == "idempotency-key"), None)


def readable(body: bytes | None) -> Any:
    """Return a body as JSON, or as text, or else as base64."""
    if body is None:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
    try:
        return json.loads(text)
    except ValueError:
        return text


def response_to_json(response: FetchResponse) -> dict[str, Any]:
    """Return a response as JSON."""
    return {
        "status": response.status,
        "headers": response.headers,
        "base64": base64.b64encode(response.body).decode(),
        "url": response.url,
    }


def response_from_json(kept: dict[str, Any]) -> FetchResponse:
    """Return the response of `response_to_json`."""
    return FetchResponse(kept["status"], kept["headers"], base64.b64decode(kept["base64"]), kept["url"])
