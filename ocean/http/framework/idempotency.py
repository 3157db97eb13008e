"""The Idempotency-Key header: a request that is repeated gets the response of the first one."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.errors import KeyNotTaken, RequestRunning
from ocean.http.framework.responses import JsonResponse
from ocean.state.errors import InvalidValue
from ocean.state.values import checked_id

IDEMPOTENCY_KEY = "Idempotency-Key"

Handler = Callable[[HandlerCall], Awaitable[Response]]


def given_key(request: Request, path: str, refusal: str | None) -> str | None:
    """Return the request's Idempotency-Key, or None without one. With a `refusal` the route takes none."""
    given = request.headers.getlist(IDEMPOTENCY_KEY)
    if not given:
        return None
    if refusal is not None:
        raise KeyNotTaken(f"{request.method} {path} does not accept {IDEMPOTENCY_KEY}{refusal}; leave it out")
    if len(given) > 1:
        raise InvalidValue(f"{IDEMPOTENCY_KEY} must be given once, got {len(given)}")
    return checked_id(given[0], IDEMPOTENCY_KEY)


class RunningRequests:
    """The Idempotency-Keys of the requests that this process is handling.

    The store saves a key together with the response, so it does not know these. Another process may handle the same
    request at the same time: both do the work, one commits, and both return the committed response.
    """

    def __init__(self) -> None:
        self._keys: set[str] = set()

    @contextmanager
    def reserve(self, key: str | None) -> Iterator[None]:
        """Hold the key while the block runs, or raise `RequestRunning` if another request holds it."""
        if key is None:
            yield
            return
        if key in self._keys:
            raise RequestRunning(
                "another request with this Idempotency-Key is still running; retry to get its response"
            )
        self._keys.add(key)
        try:
            yield
        finally:
            self._keys.discard(key)

    def exclusive(self, handler: Handler) -> Handler:
        """Return a handler that holds the key of its request while it runs."""

        async def handle(call: HandlerCall) -> Response:
            with self.reserve(call.request_key):
                return await handler(call)

        return handle


class StoredResponse(JsonResponse):
    """A stored response body, returned byte for byte."""

    def render(self, content: Any) -> bytes:
        """Return the stored text as UTF-8."""
        return str(content).encode()


def storing_response(handler: Handler) -> Handler:
    """Return a handler that stores its response after the work is done.

    For work that takes more than one transaction, each of which may be repeated. If the process dies before the
    response is stored, a repeated request starts the work again.
    """

    async def handle(call: HandlerCall) -> Response:
        if call.request_key is None:
            return await handler(call)
        body = None if call.body is None else call.body.model_dump(mode="json", exclude_unset=True)
        request = [call.request.method, call.request.url.path, body]
        stored = await call.ocean.kept_answer(call.request_key, request)
        if stored is None:
            response = await handler(call)
            stored = await call.ocean.keep_answer(call.request_key, request, bytes(response.body).decode())
        return StoredResponse(stored)

    return handle
