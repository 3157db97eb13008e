"""Streams: a feed as Server-Sent Events, which a client resumes from its cursor."""

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

from ocean.http.framework.call import StillAllowed
from ocean.http.streaming.frames import DirectWriter, batches, direct_writer_of
from ocean.state.clock import Clock, SystemClock, sleep
from ocean.state.errors import OceanError
from ocean.state.filters import FeedFilter

if TYPE_CHECKING:
    from ocean.compose import Ocean

PING_MS = 15_000
SEND_TIMEOUT_MS = 30_000
RETRY_MS = 1_000
GRACE_S = 3.0
"""How long streams may take to end when the server stops. The server's own grace period must be longer."""

logger = logging.getLogger("ocean.http")


async def always() -> bool:
    """Return True: a stream without a key never loses access."""
    return True


async def sse_response(
    ocean: "Ocean",
    request: Request,
    where: FeedFilter,
    after: int,
    still_allowed: StillAllowed = always,
    *,
    clock: Clock | None = None,
    ping_ms: int = PING_MS,
    send_timeout_ms: int = SEND_TIMEOUT_MS,
) -> Response:
    """Return a stream of the feed after the cursor. Errors are raised here, before the stream begins.

    The response is 204, which stops a browser from reconnecting, if the feed is that of one run and has ended.
    """
    first = await ocean.read_events(**_filters(where), after=after, limit=1)
    if where.run_id is not None and not first:
        run = await ocean.get_run(where.run_id)
        if run is None or run.is_ended:
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
    return Stream(ocean, where, after, still_allowed, clock or SystemClock(), ping_ms, send_timeout_ms)


async def _empty_until(work: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """Do the work and yield nothing: for the library, an empty body that ends when the work is done."""
    await work()
    no_parts: tuple[bytes, ...] = ()
    for part in no_parts:
        yield part


class Stream(EventSourceResponse):
    """One reader's stream. It waits until each batch has been sent, so a slow reader slows only its own feed.

    The library opens the stream, and ends it when the reader disconnects or the server stops. Events bypass the
    library: the task that follows the feed sends them, because with a thousand readers every step in between would be
    done for all of them before the first one gets anything. If the server offers a direct writer, events that arrive
    while that task waits are written at once, without the task.
    """

    def __init__(
        self,
        ocean: "Ocean",
        where: FeedFilter,
        after: int,
        still_allowed: StillAllowed,
        clock: Clock,
        ping_ms: int,
        send_timeout_ms: int,
    ) -> None:
        self._server_stops = anyio.Event()
        super().__init__(iter(()), ping=0, shutdown_event=self._server_stops, shutdown_grace_period=GRACE_S)
        self._ocean = ocean
        self._where = where
        self._after = after
        self._still_allowed = still_allowed
        self._clock = clock
        self._ping_ms = ping_ms
        self._send_timeout_ms = send_timeout_ms
        self._sending = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the feed until it ends, the reader disconnects or takes nothing for too long, or the server stops."""
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        run_id = self._where.run_id
        watched = nullcontext() if run_id is None else self._ocean.watching(run_id)
        with self._ocean.observed.streaming(_feed(self._where)), watched, anyio.CancelScope() as limit:
            send_in_time = partial(self._send_in_time, send, limit.cancel)
            self.body_iterator = _empty_until(partial(self._produce, send_in_time, direct_writer_of(scope)))
            await super().__call__(scope, receive, send_in_time)
        if limit.cancelled_caught:
            self._ocean.observed.dropped_streams += 1
            logger.info("dropped a reader that accepted no data for %s ms", self._send_timeout_ms)

    async def _send_in_time(self, send: Send, drop: Callable[[], None], message: Message) -> None:
        """Send a message, or drop the reader after the timeout; the library has none for the last message."""
        cancel = self._clock.call_later(self._send_timeout_ms, drop)
        try:
            await send(message)
        finally:
            cancel()

    async def _produce(self, send: Send, writer: DirectWriter | None) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_pings, send, tasks.cancel_scope)
            tasks.start_soon(self._end_with_the_server, tasks.cancel_scope)
            await self._send_feed(send, writer)
            tasks.cancel_scope.cancel()

    async def _send_body(self, send: Send, body: bytes) -> None:
        async with self._sending:
            await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _send_feed(self, send: Send, writer: DirectWriter | None) -> None:
        """Send the feed. After an error the reader reconnects with its cursor and gets the error then."""
        feed = self._ocean.follow_in_parts(self._where, self._after, None if writer is None else writer.write)
        try:
            # The cursor is sent first, so that a reader that reconnects before the first event misses nothing.
            await self._send_body(send, f"retry: {RETRY_MS}\nid: {self._after}\n\n".encode())
            async with aclosing(feed):
                async for events in feed:
                    for batch in batches(events):
                        await self._send_body(send, batch)
        except OceanError as error:
            logger.info("a stream ended: %s", error.code)
        except OSError:
            # The server reports in this way that the reader has disconnected.
            raise
        except Exception:
            logger.exception("a stream ended with an unexpected error")

    async def _send_pings(self, send: Send, scope: anyio.CancelScope) -> None:
        """Send a ping at intervals, and end the stream when its key has been revoked."""
        while True:
            await sleep(self._clock, self._ping_ms)
            if not await self._still_allowed():
                scope.cancel()
                return
            await self._send_body(send, b": ping\n\n")

    async def _end_with_the_server(self, scope: anyio.CancelScope) -> None:
        await self._server_stops.wait()
        scope.cancel()


def _feed(where: FeedFilter) -> str:
    if where.run_id is not None:
        return "run"
    return "session" if where.session_id is not None else "clog" if where.clog_id is not None else "all"


def _filters(where: FeedFilter) -> dict[str, Any]:
    return {
        "run_id": where.run_id,
        "session_id": where.session_id,
        "clog_id": where.clog_id,
        "types": where.types,
        "correlation_id": where.correlation_id,
    }
