"""A real server on loopback that sends what a test sets as the response of `/chat/completions`."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clogs.models import Ask, Message, Offer
from clogs.models.endpoint import Endpoint
from tests.http.kit import listening

Say = Callable[[], Awaitable[Response]]
PATIENCE_S = 30
DONE = "data: [DONE]\n\n"


@dataclass
class Speaker:
    """`say` makes the next responses; `requests` has the bodies and headers of the requests."""

    port: int = 0
    say: Say | None = None
    requests: list[tuple[dict[str, Any], dict[str, str]]] = field(default_factory=list)

    def endpoint(self, **options: Any) -> Endpoint:
        return Endpoint("m-1", base_url=f"http://127.0.0.1:{self.port}/v1", **options)

    def streams(self, *parts: str | bytes) -> None:
        async def say() -> Response:
            async def body() -> AsyncIterator[bytes]:
                for part in parts:
                    yield part if isinstance(part, bytes) else part.encode()

            return StreamingResponse(body(), media_type="text/event-stream")

        self.say = say

    def respond_with(self, status: int, body: str, kind: str = "application/json", **headers: str) -> None:
        async def say() -> Response:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            return Response(body, status, given, kind)

        self.say = say


@asynccontextmanager
async def speaking() -> AsyncIterator[Speaker]:
    speaker = Speaker()

    async def completions(request: Request) -> Response:
        speaker.requests.append((await request.json(), dict(request.headers)))
        assert speaker.say is not None
        return await speaker.say()

    app = Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"])])
    async with listening(app, timeout_graceful_shutdown=0, date_header=False) as (_, speaker.port):
        yield speaker


def event(**chunk: Any) -> str:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"


def sse_chunk(text: str | None = None, reason: str | None = None, **delta: Any) -> str:
    return event(choices=[{"index": 0, "delta": {"content": text, **delta}, "finish_reason": reason}])


def called(*, name: str | None = None, arguments: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


HELLO = Ask(messages=(Message(role="user", content="hello"),))
WEATHER = Offer(name="weather", description="how it is", parameters={"type": "object", "properties": {"city": {}}})
