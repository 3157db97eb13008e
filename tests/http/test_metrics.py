"""`/metrics`: what it tells, and that the document tells of it."""

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
from tests.http.kit import Caller, House, house
from tests.http.watchers import served
from tests.races.arranging import until

pytestmark = pytest.mark.anyio

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating.md"


async def scraped(h: House) -> dict[tuple[str, ...], float]:
    """Every sample: its name, then its labels as `name=value`, in the order of their names."""
    answer = await h.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["cache-control"] == "no-store"
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_pokes_ticks_and_due_work_are_told(h: House) -> None:
    before = await scraped(h)
    assert {before["ocean_pokes_total", f"source={source}"] for source in SOURCES} == {0}
    assert before["ocean_lock_losses_total", "clog=c"] == 0
    for done in (1, 2):
        await h.made({"done": done})
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


async def test_the_poke_behind_an_answer_and_the_one_of_a_caller_who_waits_are_told_apart() -> None:
    async with house(poke_ms=100) as h:
        await h.post("/v1/runs?waitMs=100", {"sessionId": "s", "clogId": "c", "input": {"done": 1}})
        told = await scraped(h)
        assert told["ocean_pokes_total", "source=wait"] == 1
        assert told["ocean_pokes_total", "source=request"] == 1


async def test_leases_are_told(h: House) -> None:
    lease = await h.leased()
    await h.complete(lease, {"type": "done"})
    told = await scraped(h)
    assert told["ocean_leases_total", "clog=x"] == told["ocean_lease_completions_total", "outcome=done"] == 1


async def test_requests_are_told_by_the_template_of_their_route(h: House) -> None:
    run_id = await h.made()
    for path in (f"/v1/runs/{run_id}", "/v1/runs/other", f"/v1/runs/{run_id}", "/nowhere", "/nowhere/else"):
        await h.get(path)
    await h.http.head("/healthz")
    await h.http.request("BREW", "/healthz")
    await h.post("/v1/leases", {"surprise": 1})
    told = {key[1:]: n for key, n in (await scraped(h)).items() if key[0] == "ocean_http_requests_total"}
    assert told["method=GET", "route=/v1/runs/{run_id}", "status=200"] == 2
    assert told["method=GET", "route=/v1/runs/{run_id}", "status=404"] == 1
    assert told["method=GET", "route=other", "status=404"] == 2
    assert told["method=HEAD", "route=/healthz", "status=200"] == 1
    assert told["method=POST", "route=/v1/leases", "status=400"] == 1
    assert sum(n for key, n in told.items() if "method=other" in key) == 1
    assert not [key for key in told if run_id in "".join(key) or "nowhere" in "".join(key)]


async def test_a_caller_who_leaves_before_the_answer_is_told_as_gone(h: House) -> None:
    caller = Caller(h.w, "/v1/leases", {"clogId": "x", "workerId": "w", "waitMs": 60_000})
    traffic: Any = caller._app.user_middleware[0].kwargs["traffic"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(caller.ask)
        await caller.listens.wait()
        caller.go_away()
    assert caller.sent == []
    assert traffic.requests == {("/v1/leases", "POST", "gone"): 1}


async def test_two_applications_in_one_process_do_not_mix() -> None:
    async with house() as one, house(more=[Clog("more")]) as other:
        await one.made({"done": 1})
        await one.w.drain()
        await one.get("/healthz")
        told = await scraped(other)
        assert not [key for key in told if key[0] == "ocean_ticks_total" or "route=/healthz" in key]
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("ocean")]


async def test_metrics_in_another_format_for_whoever_asks_for_it(h: House) -> None:
    answer = await h.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_watchers_are_told_while_they_watch() -> None:
    async with served() as s:
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
    families = Scrape(observed, Traffic(), Agenda(0, None, 0, 0)).collect()
    names = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    documented = set(re.findall(r"^\| `(ocean_\w+)", DOCUMENT.read_text(), re.MULTILINE))
    assert len(names) > 10
    assert documented == names


@pytest.mark.parametrize("version", ["abc", "1.a.0", "", "1" * 5_000, "."])
async def test_a_version_that_is_none_is_answered_as_text(version: str) -> None:
    async with house() as h:
        accepted = {"accept": f"application/openmetrics-text; version={version}"}
        answer = await h.http.get("/metrics", headers=accepted)
        assert answer.status_code == 200
        assert "ocean_pokes_total" in answer.text
