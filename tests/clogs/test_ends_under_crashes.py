"""A process that dies anywhere in the work of a shipped clog whose run is cancelled, its last tick included."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import clogs
from clogs.models import ModelReply
from clogs.schedule import schedule
from clogs.webhook_relay import SECRET_IN, SECRET_OUT, TARGETS, webhook_relay
from ocean import FetchResponse
from ocean.testing import CrashReport, Outside, World, crash_everywhere
from tests.clogs.agent.kit import Stage
from tests.clogs.schedule.kit import HOURLY, job
from tests.clogs.webhook_relay.test_webhook_relay import IN, OUT, send
from tests.flows.test_crashes import booking
from tests.flows.test_crashes import outside as hotel

pytestmark = [pytest.mark.anyio, pytest.mark.sqlite]

ASKS = ModelReply(calls=[("disk__wipe", {"path": "/a"})])
FOLDER = Path(clogs.__file__).parent


def killed_in_last_ticks(report: CrashReport) -> Collection[str]:
    """Return the points of the last ticks, which must be killed at more than their commit."""
    last: dict[str, int] = {}
    for point in report.killed:
        last[point.run_id] = max(point.tick, last.get(point.run_id, 0))
    return {point.what for point in report.killed if point.tick == last[point.run_id]}


async def codes(w: World) -> list[str | None]:
    page = await w.ocean.list_runs(order="oldest")
    assert not any(run.end_incomplete for run in page.runs)
    return [(run.error or {}).get("code") for run in page.runs]


async def test_a_cancelled_schedule_releases_its_name() -> None:
    async def scenario(w: World) -> Any:
        asked = HOURLY | {"name": "hourly"}
        made = await w.ocean.call_clog(clog_id="schedule", session_id="s", method="add", payload=asked)
        await w.drain()
        await w.ocean.cancel_run(made["run_id"])
        await w.drain()
        again = await w.ocean.call_clog(clog_id="schedule", session_id="s", method="add", payload=asked)
        assert again["run_id"] != made["run_id"], "the name is free again"
        return await codes(w)

    assert "before tick.release_dedupe_key" in killed_in_last_ticks(await crash_everywhere([schedule, job], scenario))


async def test_a_cancelled_agent_closes_its_open_approvals() -> None:
    async def scenario(w: World) -> Any:
        run = await w.ocean.create_run(session_id="s", clog_id="agent", input={"task": "Tidy up."})
        await w.drain()
        await w.ocean.cancel_run(run.run_id)
        await w.drain()
        (decided,) = await w.ocean.read_events(run.run_id, types=["approval.decided"])
        assert decided.payload["decision"] == "cancelled"
        return await codes(w)

    report = await crash_everywhere(lambda: [Stage([ASKS]).agent()], scenario)
    assert "before tick.emit" in killed_in_last_ticks(report)


async def test_a_cancelled_delivery_is_marked_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((TARGETS, "https://one.example/"), (SECRET_IN, IN), (SECRET_OUT, OUT)):
        monkeypatch.setenv(name, value)

    def outside() -> Outside:
        made = Outside()
        made.answer("POST https://one.example/", FetchResponse(500, {}, b"", "https://one.example/"))
        return made

    async def scenario(w: World) -> Any:
        await send(w)
        await w.drain()
        (run,) = (await w.ocean.list_runs(clog_id="webhook-relay")).runs
        await w.ocean.cancel_run(run.run_id)
        await w.drain()
        (run,) = (await w.ocean.list_runs(clog_id="webhook-relay")).runs
        assert run.attributes["dead"] is True
        return await codes(w)

    report = await crash_everywhere([webhook_relay], scenario, outside=outside)
    assert "before tick.set_attributes" in killed_in_last_ticks(report)


async def test_a_cancelled_flow_undoes_what_it_did() -> None:
    async def scenario(w: World) -> Any:
        run = await w.ocean.create_run(session_id="s", clog_id="trip", input="second")
        await w.wait(1_000)
        await w.ocean.cancel_run(run.run_id)
        await w.drain()
        assert [call.name.rpartition("/")[2] for call in w.outside.effects()].count("refund") == 1
        return await codes(w)

    report = await crash_everywhere(booking, scenario, outside=hotel, ignore=["*: ticks"])
    assert report.killed


def test_every_shipped_clog_with_a_last_tick_is_here() -> None:
    shipped = {"agent", "schedule", "webhook_relay"}
    found = {path.parent.name for path in FOLDER.glob("*/*.py") if ".on_end" in path.read_text()}
    assert found == shipped
