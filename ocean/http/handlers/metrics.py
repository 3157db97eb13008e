"""`GET /metrics`: the metrics of this process for Prometheus, rendered for each scrape and not stored."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response

from ocean.http.framework.call import HandlerCall
from ocean.http.framework.middleware import Traffic
from ocean.kernel.metrics import Histogram, Observations
from ocean.kernel.poke_sources import SOURCES
from ocean.state.records import Agenda

MOST_COUNTED = 1_000


async def show(call: HandlerCall) -> Response:
    """Respond with the metrics. The agenda and incomplete ends are read now; everything else has been counted."""
    ocean = call.server.ocean
    registry = CollectorRegistry()
    incomplete = await ocean.count_runs(end_incomplete=True, cap=MOST_COUNTED)
    registry.register(Scrape(ocean.observed, call.server.traffic, await ocean.agenda(), incomplete.count))
    encode, content_type = _encoder(call.request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def _encoder(accepted: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """Return the encoder for the Accept header; the library fails on versions that are not numbers."""
    try:
        return choose_encoder(accepted)
    except (TypeError, ValueError):
        return choose_encoder("")


class Scrape(Collector):
    """The metrics of one scrape."""

    def __init__(self, observed: Observations, traffic: Traffic, agenda: Agenda, incomplete: int) -> None:
        self._observed = observed
        self._traffic = traffic
        self._agenda = agenda
        self._incomplete = incomplete

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        yield from self._pokes()
        yield from self._due()
        yield from self._ticks()
        yield from self._leases()
        yield from self._server()

    def _pokes(self) -> Iterator[Metric]:
        pokes = self._observed.pokes
        counts = {(source,): pokes[source].count if source in pokes else 0 for source in SOURCES}
        yield _counter("ocean_pokes", "Calls of advance, by source", ("source",), counts)
        last = {(source,): one.last_at / 1000 for source, one in pokes.items()}
        yield _gauge("ocean_last_poke_timestamp_seconds", "Time of the last poke of a source", ("source",), last)

    def _due(self) -> Iterator[Metric]:
        agenda = self._agenda
        age = agenda.oldest_due_age_ms / 1000
        yield _gauge(
            "ocean_due_runs", "Runs that this instance could claim now, at most 1,000", (), {(): agenda.due_now}
        )
        yield _gauge("ocean_oldest_due_age_seconds", "Time since the oldest of them became due", (), {(): age})
        help = "Due runs of clogs that this instance does not have, at most 1,000"
        yield _gauge("ocean_unclaimable_runs", help, (), {(): agenda.unclaimable})
        help = "Runs that ended without their last tick, at most 1,000"
        yield _gauge("ocean_ends_incomplete", help, (), {(): self._incomplete})

    def _ticks(self) -> Iterator[Metric]:
        seen = self._observed
        help = "Calls of clogs, by outcome"
        yield _counter("ocean_ticks", help, ("clog", "outcome"), seen.ticks)
        histograms = {(clog_id,): histogram for clog_id, histogram in seen.tick_ms.items()}
        yield _histogram("ocean_tick_seconds", "Time from a claim to its commit", ("clog",), histograms, 1000)
        losses = {(clog_id,): count for clog_id, count in seen.lock_losses.items()}
        yield _counter("ocean_lock_losses", "Ticks that lost their lock before their commit", ("clog",), losses)
        help = "Calls that were repeated because rows or counters had changed"
        yield _counter("ocean_conflicts", help, ("clog", "where", "why"), seen.conflicts)

    def _leases(self) -> Iterator[Metric]:
        seen = self._observed
        leases = {(clog_id,): count for clog_id, count in seen.leases.items()}
        yield _counter("ocean_leases", "Ticks leased to external workers", ("clog",), leases)
        completions = {(outcome,): count for outcome, count in seen.completions.items()}
        yield _counter("ocean_lease_completions", "Leases completed, or lost", ("outcome",), completions)

    def _server(self) -> Iterator[Metric]:
        seen = self._observed
        streams = {(feed,): count for feed, count in seen.streams.items()}
        yield _gauge("ocean_sse_watchers", "Open streams", ("feed",), streams)
        help = "Streams dropped because their reader was too slow"
        yield _counter("ocean_sse_dropped", help, (), {(): seen.dropped_streams})
        help = "Number of writes in one transaction"
        yield _histogram("ocean_commit_batch_size", help, (), {(): seen.batches}, 1)
        requests: Counter[tuple[str, str, str]] = self._traffic.requests
        yield _counter("ocean_http_requests", "HTTP requests", ("route", "method", "status"), requests)


def _counter(
    name: str, help: str, labels: Iterable[str], values: Mapping[tuple[Any, ...], float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, help, labels=[*labels])
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _gauge(name: str, help: str, labels: Iterable[str], values: Mapping[tuple[Any, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=[*labels])
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _histogram(
    name: str, help: str, labels: Iterable[str], values: Mapping[tuple[Any, ...], Histogram], per_unit: int
) -> HistogramMetricFamily:
    """Return a histogram; `per_unit` converts the counted unit to the one shown."""
    family = HistogramMetricFamily(name, help, labels=[*labels])
    for label, histogram in values.items():
        bounds = [*(str(bound / per_unit) for bound in histogram.bounds), "+Inf"]
        buckets = [*zip(bounds, accumulate(histogram.counts), strict=True)]
        family.add_metric(label, buckets=buckets, sum_value=histogram.sum / per_unit)
    return family
