"""Requests to the HTTP application of an Ocean, without a server: for tests of routes and webhooks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from starlette.types import ASGIApp

from ocean.compose import Ocean
from ocean.http.app import make_app
from ocean.kernel.arguments import UNSET


@dataclass(frozen=True, slots=True)
class WorldResponse:
    """A response. The names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.body)


def application(ocean: Ocean) -> ASGIApp:
    """Return the application. It does not poke after its responses."""
    return make_app(ocean, poke_ms=0)


async def send_request(
    app: ASGIApp, method: str, path: str, value: Any, body: bytes, headers: Mapping[str, str]
) -> WorldResponse:
    """Send a request from 127.0.0.1, so that no API key is needed while there is none. `value` is sent as JSON."""
    sent = {"host": "127.0.0.1", **{name.lower(): text for name, text in headers.items()}}
    if value is not UNSET:
        body = json.dumps(value).encode()
        sent.setdefault("content-type", "application/json")
    place, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": unquote(place),
        "raw_path": quote(place, safe="/%:@!$&'()*+,;=").encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(name.encode(), text.encode("latin-1")) for name, text in sent.items()],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
    messages: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    start, *parts = messages
    received = {name.decode(): text.decode("latin-1") for name, text in start["headers"]}
    return WorldResponse(start["status"], received, b"".join(part.get("body", b"") for part in parts))
