"""A model behind any OpenAI-compatible endpoint: `POST {base_url}/chat/completions`, streamed."""

import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import cached_property
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import httpx2

from clogs.models.chunks import Assembly, clean, request_body
from clogs.models.errors import ModelError, refusal
from clogs.models.messages import Ask, Piece

MOST_EVENT_BYTES = 1_048_576
MOST_BODY_BYTES = 4 * 1_048_576
MOST_REFUSAL_BYTES = 65_536
MOST_SHOWN = 600
REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
PRINTABLE = re.compile(r"[\x21-\x7e]+")


class Endpoint:
    """`base_url` is the URL that the provider documents, with `/v1` if it has one. `key` names the key: `env:NAME`.

    `silence_ms` is how long the endpoint may send nothing; the tick's own limit bounds the whole answer.
    `extra` is added to the body of every request.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str,
        key: str | None = None,
        connect_ms: int = 10_000,
        silence_ms: int = 60_000,
        asks_usage: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._url = _completions_url(base_url)
        self._key = None if key is None else check_reference(key)
        self._timeout = httpx2.Timeout(silence_ms / 1000, connect=connect_ms / 1000)
        self._asks_usage = asks_usage
        self._extra = dict(extra or {})

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, at {_shown(self._url)!r})"

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context()

    @asynccontextmanager
    async def answer(self, ask: Ask) -> AsyncIterator[AsyncIterator[Piece]]:
        secret = "" if self._key is None else resolve_key(self._key)
        async with aclosing(self._pieces(ask, secret)) as pieces:
            yield pieces

    async def _pieces(self, ask: Ask, secret: str) -> AsyncGenerator[Piece, None]:
        headers = {"accept": "text/event-stream"}
        headers |= {"authorization": f"Bearer {secret}"} if secret else {}
        headers |= {"idempotency-key": ask.idempotency_key} if ask.idempotency_key else {}
        body = request_body(self.name, ask, self._asks_usage) | self._extra
        try:
            async with (
                httpx2.AsyncClient(timeout=self._timeout, verify=self._tls) as client,
                client.stream("POST", self._url, json=body, headers=headers) as response,
            ):
                if response.status_code != 200:
                    body_read = await _read(response, MOST_REFUSAL_BYTES)
                    raise refusal(response.status_code, response.headers, body_read)
                async with aclosing(_pieces_of(response)) as pieces:
                    async for piece in pieces:
                        yield piece
        except ModelError as error:
            raise _fit_to_keep(error, secret) from None
        except httpx2.TimeoutException as error:
            raise self._connection_error("timeout", f"did not respond in time ({type(error).__name__})") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            # Not chained: a transport error may contain the headers of the request.
            raise self._connection_error(
                "unreachable", f"closed the connection or could not be reached ({type(error).__name__})"
            ) from None

    def _connection_error(self, code: str, what: str) -> ModelError:
        return ModelError(code, f"{_shown(self._url)} {what}", is_passing=True)


async def _pieces_of(response: httpx2.Response) -> AsyncGenerator[Piece, None]:
    assembly = Assembly()
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        # Some endpoints do not stream and send the whole answer as one object.
        for piece in assembly.take(_parsed((await _read(response, MOST_BODY_BYTES)).decode("utf-8", "replace"))):
            yield piece
    else:
        source = httpx2.EventSource(response, MOST_EVENT_BYTES)
        async with aclosing(cast(AsyncGenerator[httpx2.ServerSentEvent, None], aiter(source))) as events:
            async for event in events:
                if event.data == "[DONE]":
                    break
                if event.data:
                    for piece in assembly.take(_parsed(event.data)):
                        yield piece
    for piece in assembly.finish():
        yield piece


async def _read(response: httpx2.Response, most_bytes: int) -> bytes:
    body = b""
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > most_bytes:
                break
    return body[:most_bytes]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ModelError("bad_answer", f"the endpoint sent invalid JSON: {text!r}", is_passing=True) from None


def _completions_url(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or "@" in parts.netloc or parts.fragment:
        raise ValueError("base_url must be like https://host/v1, without a user, a password or a fragment")
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/chat/completions"))


def _shown(url: str) -> str:
    """Return the URL without its query, which may contain a key."""
    return url.partition("?")[0]


def _fit_to_keep(error: ModelError, secret: str) -> ModelError:
    """Return the error as it can be stored: without the key, which endpoints may repeat, and shortened."""

    def fit(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return clean(value.replace(secret, "***") if secret else value)[:MOST_SHOWN]

    return ModelError(
        error.code,
        fit(error.message),
        is_passing=error.is_passing,
        after_ms=error.after_ms,
        details=error.details and {name: fit(value) for name, value in error.details.items()},
    )


def check_reference(reference: str) -> str:
    if not REFERENCE.fullmatch(reference):
        raise ValueError("key must be env:NAME, the name of the variable that holds it; the given value is not shown")
    return reference


def resolve_key(reference: str) -> str:
    name = reference.removeprefix("env:")
    secret = os.environ.get(name, "").strip()
    if not secret:
        raise ModelError("no_credential", f"{name} is not set; set it to the endpoint's key")
    if not PRINTABLE.fullmatch(secret):
        raise ModelError(
            "no_credential", f"{name} must not contain spaces or control characters; set it to the endpoint's key"
        )
    return secret
