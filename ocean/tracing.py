"""OpenTelemetry, for those who want it: spans of requests, pokes and ticks. Needs the extra `otel`.

Nothing else imports this module, so without it no OpenTelemetry is loaded. Where spans go is the deployer's to say, by
the SDK's own settings; without an SDK they go nowhere.
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
    """The application with a span around each request; pokes and ticks of the Ocean have spans from now on."""
    tracer = trace.get_tracer(NAME, tracer_provider=provider)
    ocean.observed.tell(Spans(tracer))
    return TracedRequests(app, tracer)


def trace_ocean(ocean: Ocean, provider: TracerProvider | None = None) -> None:
    """Spans for pokes and ticks, where there is no application."""
    ocean.observed.tell(Spans(trace.get_tracer(NAME, tracer_provider=provider)))


class Spans(Listener):
    """A tick's span lies in its poke's, and that in the span of whoever poked."""

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
        """Without the exception that may end it: its message could quote what users stored."""
        return self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        )


class TracedRequests:
    """A server's span for each request, within the trace that its `traceparent` names."""

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
                    _answered(span, method, route_of(scope), message["status"])
                await send(message)
                # The poke behind the answer has a span of its own.
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    span.end()

            try:
                await self._app(scope, receive, send_and_note)
            finally:
                if span.is_recording():
                    span.end()


def _answered(span: Span, method: str, route: str, status: int) -> None:
    span.update_name(f"{method} {route}")
    span.set_attributes({"http.route": route, "http.response.status_code": status})
    if status >= 500:
        span.set_status(StatusCode.ERROR)
