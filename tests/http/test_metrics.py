"""`/metrics`: its values, and that the documentation lists them."""

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from ocean import Clog
from ocean.http.framework.middleware import Traffic
from ocean.http.handlers.metrics import Scrape
from ocean.kernel.metrics import Histogram, Observations
from ocean.kernel.poke_sources import SOURCES
from ocean.state.records import Agenda
from ocean.testing import ManualClock
from tests.http.kit import AppWorld, AsgiCaller, app_world
from tests.http.stream_client import stream_server
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

DOCUMENT = Path(__file__).parents[2] / "docs" / "monitoring.md"


async def scraped(h: AppWorld) -> dict[tuple[str, ...], float]:
    """Return every sample by its name and its labels as `name=value`, sorted by name."""
    response = await h.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert response.headers["cache-control"] == "no-store"
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_pokes_ticks_and_due_runs_are_counted(h: AppWorld) -> None:
    before = await scraped(h)
    assert {before["ocean_pokes_total", f"source={source}"] for source in SOURCES} == {0}
    assert before["ocean_lock_losses_total", "clog=c"] == 0
    for done in (1, 2):
        await h.new_run({"done": done})
    h.w.clock.advance(1_500)
    due = await scraped(h)
    assert (due["ocean_due_runs",], due["ocean_oldest_due_age_seconds",], due["ocean_unclaimable_runs",]) == (2, 1.5, 0)
    await h.post("/v1/advance", {"maxTicks": 1})
    after = await scraped(h)
    assert after["ocean_pokes_total", "source=http"] == 1
    assert after["ocean_last_poke_timestamp_seconds", "source=http"] == h.w.clock.now() / 1000
    assert after["ocean_ticks_total", "clog=c", "outcome=done"] == 1
    assert after["ocean_due_runs",] == 1
    assert after["ocean_tick_seconds_bucket", "clog=c", "le=0.005"] == 1
    assert after["ocean_tick_seconds_count", "clog=c"] == 1
    assert after["ocean_commit_batch_size_count",] > before["ocean_commit_batch_size_count",]
    assert after["ocean_commit_batch_size_bucket", "le=+Inf"] == after["ocean_commit_batch_size_count",]


async def test_pokes_after_responses_and_of_waiting_callers_have_different_sources() -> None:
    async with app_world(poke_ms=100) as h:
        await h.post("/v1/runs?waitMs=100", {"sessionId": "s", "clogId": "c", "input": {"done": 1}})
        samples = await scraped(h)
        assert samples["ocean_pokes_total", "source=wait"] == 1
        assert samples["ocean_pokes_total", "source=request"] == 1


async def test_leases_are_counted(h: AppWorld) -> None:
    lease = await h.new_lease()
    await h.complete(lease, {"type": "done"})
    samples = await scraped(h)
    assert samples["ocean_leases_total", "clog=x"] == samples["ocean_lease_completions_total", "outcome=done"] == 1


async def test_requests_are_counted_by_the_template_of_their_route(h: AppWorld) -> None:
    run_id = await h.new_run()
    for path in (f"/v1/runs/{run_id}", "/v1/runs/other", f"/v1/runs/{run_id}", "/nowhere", "/nowhere/else"):
        await h.get(path)
    await h.http.head("/healthz")
    await h.http.request("BREW", "/healthz")
    await h.post("/v1/leases", {"surprise": 1})
    requests = {key[1:]: n for key, n in (await scraped(h)).items() if key[0] == "ocean_http_requests_total"}
    assert requests["method=GET", "route=/v1/runs/{run_id}", "status=200"] == 2
    assert requests["method=GET", "route=/v1/runs/{run_id}", "status=404"] == 1
    assert requests["method=GET", "route=other", "status=404"] == 2
    assert requests["method=HEAD", "route=/healthz", "status=200"] == 1
    assert requests["method=POST", "route=/v1/leases", "status=400"] == 1
    assert sum(n for key, n in requests.items() if "method=other" in key) == 1
    assert not [key for key in requests if run_id in "".join(key) or "nowhere" in "".join(key)]


async def test_a_caller_that_disconnects_before_the_response_is_counted_as_gone(h: AppWorld) -> None:
    caller = AsgiCaller(h.w, "/v1/leases", {"clogId": "x", "workerId": "w", "waitMs": 60_000})
    traffic: Any = caller._app.user_middleware[0].kwargs["traffic"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.call)
        await caller.is_listening.wait()
        caller.disconnect()
    assert caller.sent == []
    assert traffic.requests == {("/v1/leases", "POST", "gone"): 1}


async def test_two_applications_in_one_process_do_not_mix() -> None:
    async with app_world() as one, app_world(more=[Clog("more")]) as other:
        await one.new_run({"done": 1})
        await one.w.drain()
        await one.get("/healthz")
        samples = await scraped(other)
        assert not [key for key in samples if key[0] == "ocean_ticks_total" or "route=/healthz" in key]
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("ocean")]


async def test_metrics_are_available_in_openmetrics_format(h: AppWorld) -> None:
    response = await h.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


async def test_open_streams_are_counted() -> None:
    async with stream_server() as s:
        run_id = await s.run()
        paths = ("/v1/events", f"/v1/runs/{run_id}/events", "/v1/sessions/s/events", "/v1/clogs/c/events")
        watchers = [await s.open(path) for path in paths]
        streams = s.w.ocean.observed.streams
        await until(lambda: streams == {"all": 1, "run": 1, "session": 1, "clog": 1})
        for watcher in watchers:
            await watcher.close()
        await until(lambda: not any(streams.values()))


def test_the_document_lists_every_metric_and_no_other() -> None:
    observed = Observations(ManualClock(), Histogram((1,)))
    families = Scrape(observed, Traffic(), Agenda(0, None, 0, 0), 0).collect()
    names = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    documented = set(re.findall(r"^\| `(ocean_\w+)", DOCUMENT.read_text(), re.MULTILINE))
    assert len(names) > 10
    assert documented == names


@pytest.mark.parametrize("version", ["abc", "1.a.0", "", "1" * 5_000, "."])
async def test_an_invalid_format_version_gets_plain_text(version: str) -> None:
    async with app_world() as h:
        accepted = {"accept": f"application/openmetrics-text; version={version}"}
        response = await h.http.get("/metrics", headers=accepted)
        assert response.status_code == 200
        assert "ocean_pokes_total" in response.text
