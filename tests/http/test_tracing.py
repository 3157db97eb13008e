"""OpenTelemetry: nested spans for each request, poke and tick; nothing is loaded unless it is enabled."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ocean import Continue, Done, Failed, Ocean, Outcome, Tick
from ocean.cli.commands.serve import with_tracing
from ocean.config import BadSettings
from ocean.http.app import make_app
from ocean.kernel.store.claims import TickAnswer, TickCommit
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from ocean.tracing import trace_ocean, traced
from tests.http.kit import AppWorld
from tests.lifecycle.acting import Script, stage, start

pytestmark = pytest.mark.anyio

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARY = "canary-77aa"


class Traces:
    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    def all(self) -> tuple[ReadableSpan, ...]:
        return self._kept.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@asynccontextmanager
async def traced_world(*acts: Any) -> AsyncIterator[tuple[AppWorld, Traces]]:
    traces = Traces()
    async with stage(Script(*acts)) as w:
        app = traced(w.ocean, make_app(w.ocean, poke_ms=100, ready_age_ms=0), traces.provider)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
            yield AppWorld(w, http), traces


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    own: int = span.context.span_id
    return own


async def test_the_span_of_a_tick_is_within_that_of_its_poke_within_that_of_the_request() -> None:
    async with traced_world(Continue(), Done()) as (h, traces):
        body = {"sessionId": "s", "clogId": "c", "runId": "r1", "input": CANARY}
        await h.post("/v1/runs", body, headers={"traceparent": PARENT, "x-secret": CANARY})
        request, poke = traces.one("POST /v1/runs"), traces.one("ocean.advance")
        ticks = traces.named("ocean.tick")
        assert request.kind is SpanKind.SERVER
        assert attributes_of(request) == {
            "http.request.method": "POST",
            "http.route": "/v1/runs",
            "http.response.status_code": 201,
        }
        assert request.context is not None
        assert f"{request.context.trace_id:032x}-{parent_of(request):016x}" in PARENT
        assert (parent_of(poke), attributes_of(poke)) == (id_of(request), {"ocean.source": "request"})
        assert [parent_of(tick) for tick in ticks] == [id_of(poke)] * 2
        assert [attributes_of(tick) for tick in ticks] == [
            {
                "ocean.run_id": "r1",
                "ocean.clog_id": "c",
                "ocean.tick": tick,
                "ocean.epoch": tick,
                "ocean.reason": reason,
                "ocean.outcome": outcome,
                "ocean.call": 1,
            }
            for tick, reason, outcome in ((1, "created", "continue"), (2, "continue", "done"))
        ]
        assert request.end_time is not None
        assert poke.end_time is not None
        assert request.end_time < poke.end_time, "the poke after the response is not part of it"
        assert CANARY not in "".join(span.to_json() for span in traces.all())


async def test_a_failed_span_has_the_code_without_the_message() -> None:
    async def fail(tick: Tick) -> Outcome:
        raise ValueError(CANARY)

    async with traced_world(fail, Failed({"code": "no_paper", "message": CANARY})) as (h, traces):
        await h.post("/v1/runs", {"sessionId": "s", "clogId": "c", "input": 1})
        h.w.clock.advance(600_000)
        await h.post("/v1/advance")
        codes = [attributes_of(tick)["ocean.error_code"] for tick in traces.named("ocean.tick")]
        assert codes == ["exception", "no_paper"]
        assert CANARY not in "".join(span.to_json() for span in traces.all())


async def test_a_server_error_is_an_error_of_the_span() -> None:
    async with traced_world() as (h, traces):
        await h.get("/v1/runs/missing")
        await h.get("/nowhere")
        assert [traces.one("GET /v1/runs/{run_id}").status.status_code, traces.one("GET other").status.status_code] == [
            StatusCode.UNSET
        ] * 2
        await start(h.w)
        h.w.clock.advance(1)
        assert (await h.get("/readyz")).status_code == 503
        assert traces.one("GET /readyz").status.status_code is StatusCode.ERROR


async def test_a_request_without_a_trace_begins_one() -> None:
    async with traced_world() as (h, traces):
        await h.get("/healthz")
        assert traces.one("GET /healthz").parent is None


async def test_an_ocean_without_a_server_is_traced_too() -> None:
    traces = Traces()
    async with stage(Script(Done())) as w:
        trace_ocean(w.ocean, traces.provider)
        run_id = await start(w)
        await w.ocean.advance(run_id=run_id)
        assert attributes_of(traces.one("ocean.advance")) == {"ocean.source": "python", "ocean.run_id": run_id}
        assert attributes_of(traces.one("ocean.tick"))["ocean.outcome"] == "done"


class Leaky(SqliteStore):
    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        raise RuntimeError(CANARY)


async def test_an_exception_ends_its_span_as_an_error_without_its_message() -> None:
    traces, clock = Traces(), ManualClock()
    store = Leaky(":memory:", clock)
    await store.open()
    ocean = Ocean(store, [Script(Done())], clock)
    try:
        await ocean.start()
        trace_ocean(ocean, traces.provider)
        await ocean.create_run(session_id="s", clog_id="c", input=1)
        with pytest.raises(RuntimeError, match=CANARY):
            await ocean.advance()
    finally:
        await ocean.close()
    tick = traces.one("ocean.tick")
    assert (attributes_of(tick)["ocean.outcome"], tick.status.status_code) == ("error", StatusCode.ERROR)
    assert CANARY not in "".join(span.to_json() for span in traces.all())


async def test_a_server_is_traced_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(Script()) as w:
        app = make_app(w.ocean)
        for asked in ("", "0"):
            monkeypatch.setenv("OCEAN_OTEL", asked)
            assert with_tracing(w.ocean, app) is app
        monkeypatch.setenv("OCEAN_OTEL", "1")
        assert with_tracing(w.ocean, app) is not app
        monkeypatch.setenv("OCEAN_OTEL", "yes")
        with pytest.raises(BadSettings, match="OCEAN_OTEL must be 1 or 0"):
            with_tracing(w.ocean, app)
        monkeypatch.setenv("OCEAN_OTEL", "1")
        monkeypatch.setitem(sys.modules, "ocean.tracing", None)
        with pytest.raises(BadSettings, match=r"pip install 'ocean-runtime\[otel\]'"):
            with_tracing(w.ocean, app)


def test_importing_ocean_does_not_load_opentelemetry() -> None:
    program = (
        "import sys, ocean, ocean.cli.commands.serve, ocean.http.app, ocean.testing, ocean.logs;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
