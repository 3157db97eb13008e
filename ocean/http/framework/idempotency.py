"""A request that is repeated while the first one is still at work."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.responses import Response

from ocean.http.framework.call import Call
from ocean.http.framework.errors import RequestRunning
from ocean.http.framework.wire import Answer

Handler = Callable[[Call], Awaitable[Response]]


class AtWork:
    """The keys of the requests that this process is at work on.

    The store keeps a key with the answer, so it cannot know them. Another process may be at the same request: both do
    the work, one commits, and both get its answer.
    """

    def __init__(self) -> None:
        self._keys: set[str] = set()

    @contextmanager
    def on(self, key: str | None) -> Iterator[None]:
        if key is None:
            yield
            return
        if key in self._keys:
            raise RequestRunning("the request with this Idempotency-Key is still at work; ask again for its answer")
        self._keys.add(key)
        try:
            yield
        finally:
            self._keys.discard(key)

    def alone(self, handler: Handler) -> Handler:
        async def answer(call: Call) -> Response:
            with self.on(call.request_key):
                return await handler(call)

        return answer


class Kept(Answer):
    """An answer as it was given before, letter by letter."""

    def render(self, content: Any) -> bytes:
        return str(content).encode()


def keeping(handler: Handler) -> Handler:
    """For work of many transactions, each of which may be made again: its answer is kept when it is known.

    A process that dies before that leaves no answer, and the request begins anew.
    """

    async def answer(call: Call) -> Response:
        if call.request_key is None:
            return await handler(call)
        said = None if call.body is None else call.body.model_dump(mode="json", exclude_unset=True)
        asked = [call.request.method, call.request.url.path, said]
        kept = await call.ocean.kept_answer(call.request_key, asked)
        if kept is None:
            response = await handler(call)
            kept = await call.ocean.keep_answer(call.request_key, asked, bytes(response.body).decode())
        return Kept(kept)

    return answer
