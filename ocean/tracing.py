"""OpenTelemetry spans of requests, pokes and ticks. Needs the extra `otel`.

No other module imports this one, so OpenTelemetry is loaded only if it is used. The settings of the SDK decide where
spans go; without an SDK they are dropped.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ocean.compose import Ocean
from ocean.http.framework.middleware import METHODS, OTHER, route_of
from ocean.kernel.metrics import Listener, TickSeen
from ocean.kernel.poke_sources import PokeSource

NAME = "ocean"
BAD_ENDS = frozenset({"error", "lock_lost"})


def traced(ocean: Ocean, app: ASGIApp, provider: TracerProvider | None = None) -> ASGIApp:
    """Return the application with a span around each request, and add spans to the pokes and ticks of the Ocean."""
    tracer = trace.get_tracer(NAME, tracer_provider=provider)
    ocean.observed.add_listener(Spans(tracer))
    return TracedRequests(app, tracer)


def trace_ocean(ocean: Ocean, provider: TracerProvider | None = None) -> None:
    """Add spans to pokes and ticks of an Ocean without an application."""
    ocean.observed.add_listener(Spans(trace.get_tracer(NAME, tracer_provider=provider)))


class Spans(Listener):
    """The span of a tick is inside that of its poke, and that inside the span of the caller."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def around_poke(self, source: PokeSource, run_id: str | None) -> AbstractContextManager[Any]:
        attributes = {"ocean.source": source} | ({} if run_id is None else {"ocean.run_id": run_id})
        return self._quiet_span("ocean.advance", attributes)

    @contextmanager
    def around_tick(self, seen: TickSeen) -> Iterator[None]:
        attributes = {
            "ocean.run_id": seen.run_id,
            "ocean.clog_id": seen.clog_id,
            "ocean.tick": seen.tick,
            "ocean.epoch": seen.epoch,
            "ocean.reason": seen.reason,
        }
        with self._quiet_span("ocean.tick", attributes) as span:
            try:
                yield
            finally:
                span.set_attributes({"ocean.outcome": seen.outcome, "ocean.call": seen.call})
                if seen.code is not None:
                    span.set_attribute("ocean.error_code", seen.code)
                if seen.outcome in BAD_ENDS:
                    span.set_status(StatusCode.ERROR)

    def _quiet_span(self, name: str, attributes: dict[str, Any]) -> AbstractContextManager[Span]:
        """Start a span that does not record exceptions: their messages could quote what users stored."""
        return self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )


class TracedRequests:
    """A server span for each request, in the trace of its `traceparent` header."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else OTHER
        with self._tracer.start_as_current_span(
            method,
            context=propagate.extract(Headers(scope=scope)),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method},
            record_exception=False,
            set_status_on_exception=False,
            end_on_exit=False,
        ) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _set_response(span, method, route_of(scope), message["status"])
                await send(message)
                # The poke after the response has its own span.
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    span.end()

            try:
                await self._app(scope, receive, send_and_note)
            finally:
                if span.is_recording():
                    span.end()


def _set_response(span: Span, method: str, route: str, status: int) -> None:
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.set_status(StatusCode.ERROR)
