"""Streams: a feed as Server-Sent Events, resumed by its cursor, for as long as somebody reads them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ocean.http.framework.call import StillMay
from ocean.http.streaming.direct_write import Line, line_of
from ocean.http.streaming.frames import sendings
from ocean.state.clock import Clock, SystemClock, sleep
from ocean.state.errors import OceanError
from ocean.state.filters import FeedFilter

if TYPE_CHECKING:
    from ocean.compose import Ocean

PING_MS = 15_000
SEND_TIMEOUT_MS = 30_000
RETRY_MS = 1_000
GRACE_S = 3.0
"""For streams to end by themselves when the server stops. A server's own grace time has to be longer."""

logger = logging.getLogger("ocean.http")


async def always() -> bool:
    return True


async def sse_response(
    ocean: "Ocean",
    request: Request,
    where: FeedFilter,
    after: int,
    still_may: StillMay = always,
    *,
    clock: Clock | None = None,
    ping_ms: int = PING_MS,
    send_timeout_ms: int = SEND_TIMEOUT_MS,
) -> Response:
    """A stream of the feed after the cursor. What is to be refused is refused here, before there is a stream.

    204, which keeps a browser from asking again, if the feed is one run's and has nothing more to tell.
    """
    first = await ocean.read_events(**_asked(where), after=after, limit=1)
    if where.run_id is not None and not first:
        run = await ocean.get_run(where.run_id)
        if run is None or run.is_ended:
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
    return Stream(ocean, where, after, still_may, clock or SystemClock(), ping_ms, send_timeout_ms)


async def _empty_until(work: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """To the library, a body without parts that ends when the work is done."""
    await work()
    no_parts: tuple[bytes, ...] = ()
    for part in no_parts:
        yield part


class Stream(EventSourceResponse):
    """One reader's stream. It waits until each sending is on its way, so a slow reader slows only its own feed.

    The library opens it, and ends it with its reader or with the server. What is told is sent past the library, by the
    task that follows the feed: with a thousand readers each step between the two would be done for all of them before
    the first one has anything. Where the server gives us its line to the reader, what comes while that task waits is
    written to it at once, without the task.
    """

    def __init__(
        self,
        ocean: "Ocean",
        where: FeedFilter,
        after: int,
        still_may: StillMay,
        clock: Clock,
        ping_ms: int,
        send_timeout_ms: int,
    ) -> None:
        self._server_stops = anyio.Event()
        super().__init__(iter(()), ping=0, shutdown_event=self._server_stops, shutdown_grace_period=GRACE_S)
        self._ocean = ocean
        self._where = where
        self._after = after
        self._still_may = still_may
        self._clock = clock
        self._ping_ms = ping_ms
        self._send_timeout_ms = send_timeout_ms
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        run_id = self._where.run_id
        watched = nullcontext() if run_id is None else self._ocean.watching(run_id)
        with self._ocean.observed.streaming(_feed(self._where)), watched, anyio.CancelScope() as limit:
            send_in_time = partial(self._send_in_time, send, limit.cancel)
            self.body_iterator = _empty_until(partial(self._produce, send_in_time, line_of(scope)))
            await super().__call__(scope, receive, send_in_time)
        if limit.cancelled_caught:
            self._ocean.observed.dropped_streams += 1
            logger.info("dropped a reader that took nothing for %s ms", self._send_timeout_ms)

    async def _send_in_time(self, send: Send, drop: Callable[[], None], message: Message) -> None:
        """Every message, the last one too, which the library would wait for without end."""
        cancel = self._clock.call_later(self._send_timeout_ms, drop)
        try:
            await send(message)
        finally:
            cancel()

    async def _produce(self, send: Send, line: Line | None) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._beat, send, tasks.cancel_scope)
            tasks.start_soon(self._end_with_the_server, tasks.cancel_scope)
            await self._tell(send, line)
            tasks.cancel_scope.cancel()

    async def _say(self, send: Send, body: bytes) -> None:
        async with self._turn:
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _tell(self, send: Send, line: Line | None) -> None:
        """An error ends the stream, and nothing more: its reader comes back with its cursor, and is answered then."""
        feed = self._ocean.follow_in_parts(self._where, self._after, None if line is None else line.tell)
        try:
            # Its place in the log: whoever comes back before the first event misses none.
            await self._say(send, f"retry: {RETRY_MS}\nid: {self._after}\n\n".encode())
            async with aclosing(feed):
                async for events in feed:
                    for sending in sendings(events):
                        await self._say(send, sending)
        except OceanError as error:
            logger.info("a stream ends: %s", error.code)
        except OSError:
            # The reader is gone, and so the server says.
            raise
        except Exception:
            logger.exception("a stream ends by an unexpected error")

    async def _beat(self, send: Send, scope: anyio.CancelScope) -> None:
        """Each time it also looks whether the reader's key still holds: one that is revoked ends its streams."""
        while True:
            await sleep(self._clock, self._ping_ms)
            if not await self._still_may():
                scope.cancel()
                return
            await self._say(send, b": ping\n\n")

    async def _end_with_the_server(self, scope: anyio.CancelScope) -> None:
        await self._server_stops.wait()
        scope.cancel()


def _feed(where: FeedFilter) -> str:
    if where.run_id is not None:
        return "run"
    return "session" if where.session_id is not None else "clog" if where.clog_id is not None else "all"


def _asked(where: FeedFilter) -> dict[str, Any]:
    return {
        "run_id": where.run_id,
        "session_id": where.session_id,
        "clog_id": where.clog_id,
        "types": where.types,
        "correlation_id": where.correlation_id,
    }
