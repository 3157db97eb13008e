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


class Endpoint:
    """`base_url` as its provider writes it, with `/v1` if there is one. `key` names the key: `env:NAME`.

    `silence_ms` is how long the endpoint may send nothing; the tick's own limit bounds the whole answer.
    `extra` goes into every request's body as it is.
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
        self._key = None if key is None else checked_reference(key)
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
        secret = "" if self._key is None else resolved(self._key)
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
                    said = await _read(response, MOST_REFUSAL_BYTES)
                    raise refusal(response.status_code, response.headers, said)
                async with aclosing(_answer_in(response)) as pieces:
                    async for piece in pieces:
                        yield piece
        except ModelError as error:
            raise _fit_to_keep(error, secret) from None
        except httpx2.TimeoutException as error:
            raise self._lost("timeout", f"did not answer in time ({type(error).__name__})") from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            # Not chained: what a transport says of a request may hold its headers.
            raise self._lost("unreachable", f"broke off ({type(error).__name__})") from None

    def _lost(self, code: str, what: str) -> ModelError:
        return ModelError(code, f"{_shown(self._url)} {what}", is_passing=True)


async def _answer_in(response: httpx2.Response) -> AsyncGenerator[Piece, None]:
    assembly = Assembly()
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        # Some endpoints stream nothing, and send the whole answer as one object.
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
        raise ModelError("bad_answer", f"the endpoint sent what is no JSON: {text!r}", is_passing=True) from None


def _completions_url(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_fine = False
    if not is_fine or "@" in parts.netloc or parts.fragment:
        raise ValueError("base_url is https://host/v1 or the like, without a user, a password or a fragment")
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/chat/completions"))


def _shown(url: str) -> str:
    """Without the query: keys live there too."""
    return url.partition("?")[0]


def _fit_to_keep(error: ModelError, secret: str) -> ModelError:
    """What an error says is stored. Endpoints may repeat the key they were sent, and may say much."""

    def fit(told: Any) -> Any:
        if not isinstance(told, str):
            return told
        return clean(told.replace(secret, "***") if secret else told)[:MOST_SHOWN]

    return ModelError(
        error.code,
        fit(error.message),
        is_passing=error.is_passing,
        after_ms=error.after_ms,
        details=error.details and {name: fit(told) for name, told in error.details.items()},
    )


REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
PRINTABLE = re.compile(r"[\x21-\x7e]+")


def checked_reference(reference: str) -> str:
    if not REFERENCE.fullmatch(reference):
        raise ValueError("a key is given as env:NAME, the variable that holds it; what was given is not shown")
    return reference


def resolved(reference: str) -> str:
    name = reference.removeprefix("env:")
    secret = os.environ.get(name, "").strip()
    if not secret:
        raise ModelError("no_credential", f"the environment has no {name}: set it to the endpoint's key")
    if not PRINTABLE.fullmatch(secret):
        raise ModelError("no_credential", f"{name} holds spaces or other characters that no key has: set it again")
    return secret
