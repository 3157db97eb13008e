"""The place of an exception over HTTP: a caller who may read a run sees it, and no other."""

from typing import Any

import pytest

from ocean import Clog, Outcome, Tick
from tests.failing import NAME, charge, line_of, place_in
from tests.http.kit import app_world

pytestmark = pytest.mark.anyio

PLACE = (NAME, line_of("charge"), "charge")


def shop() -> Clog:
    clog = Clog("shop")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        charge()

    @clog.method
    async def pay(tick: Tick, payload: Any) -> None:
        charge()

    return clog


async def test_a_run_its_explanation_and_a_wait_for_it_have_the_place_of_its_error() -> None:
    async with app_world(more=[shop()]) as h:
        body = {"sessionId": "s", "clogId": "shop", "runId": "r", "retry": {"maxAttempts": 2}}
        await h.post("/v1/runs", body | {"input": 1})
        await h.w.drain()
        run = await h.get_json("/v1/runs/r")
        assert run["status"] == "pending"
        assert place_in(run["error"]) == PLACE
        assert run["error"]["where"]["traceback"].endswith("ValueError: no such card 4711")
        explained = await h.get_json("/v1/runs/r/explain")
        assert explained["error"] == run["error"]
        assert explained["holds"][0]["code"] == "backing_off"
        assert f"at {NAME}:{PLACE[1]} in charge" in explained["holds"][0]["message"]
        (listed,) = (await h.get_json("/v1/runs", clogId="shop"))["runs"]
        assert place_in(listed["error"]) == PLACE
        assert "traceback" not in listed["error"]["where"]
        h.w.clock.advance(60_000)
        await h.w.drain()
        created = await h.post("/v1/runs?waitMs=1000", body | {"runId": "t", "input": 1, "retry": {"maxAttempts": 1}})
        assert created.json()["status"] == "failed"
        assert place_in(created.json()["error"]) == PLACE
        explained = await h.get_json("/v1/runs/r/explain")
        assert explained["holds"][0]["message"].startswith(
            "the run has ended (failed); the last error: ValueError: no "
        )
        assert place_in(explained["error"]) == PLACE
        events = (await h.get_json("/v1/runs/r/events"))["events"]
        assert [place_in(each["payload"]["error"]) for each in events if each["type"] == "run.retrying"] == [PLACE]


async def test_a_caller_who_may_not_read_the_run_sees_no_place() -> None:
    async with app_world(more=[shop()]) as h:
        await h.post("/v1/runs", {"sessionId": "mine", "clogId": "shop", "runId": "r", "input": 1})
        await h.w.drain()
        mine = (await h.w.ocean.create_api_key("ann", ["read"], sessions=["mine"])).key
        theirs = (await h.w.ocean.create_api_key("bob", ["read", "signal"], sessions=["theirs"])).key
        for path in ("/v1/runs/r", "/v1/runs/r/explain", "/v1/runs/r/events", "/v1/runs"):
            own = await h.http.get(path, headers={"authorization": f"Bearer {mine}"})
            assert NAME in own.text
            other = await h.http.get(path, headers={"authorization": f"Bearer {theirs}"})
            assert NAME not in other.text
            assert "no such card" not in other.text


async def test_a_method_that_raises_shows_its_caller_no_place() -> None:
    async with app_world(more=[shop()]) as h:
        response = await h.post("/v1/clogs/shop/call/pay", {"sessionId": "s"})
        assert response.status_code == 500
        assert NAME not in response.text
        assert "no such card" not in response.text


async def test_a_worker_may_report_a_place_and_pass_one_on() -> None:
    where = {"type": "OSError", "file": "worker.py", "line": 7, "function": "paint", "traceback": "password=hunter22"}
    async with app_world() as h:
        lease = await h.new_lease()
        error = {"code": "exception", "message": "OSError: no paint", "details": None, "where": where}
        response = await h.complete(lease, {"type": "failed", "error": error})
        assert response.status_code == 200, response.text
        run = await h.get_json(f"/v1/runs/{lease['runId']}")
        assert run["error"] == error | {"where": where | {"traceback": "password=[redacted]"}}


async def test_a_dry_run_shows_the_place() -> None:
    async with app_world(more=[shop()]) as h:
        await h.post("/v1/runs", {"sessionId": "s", "clogId": "shop", "runId": "r", "input": 1})
        shown = (await h.post("/v1/advance", {"runId": "r", "dryRun": True})).json()
        assert place_in(shown["dryRun"]["outcome"]["error"]) == PLACE
