"""The methods of schedules, and what they refuse before anything is stored."""

from typing import Any

import pytest

from ocean import CallRefused, InvalidValue, OceanError, RunStatus
from ocean.testing import World
from tests.clogs.schedule.kit import HOUR, HOURLY, add, emitted, fired, hours, look

pytestmark = pytest.mark.anyio


async def ask(w: World, run_id: str, method: str, payload: Any = None) -> Any:
    return await w.ocean.call_clog(run_id=run_id, method=method, payload=payload)


async def ask_clog(w: World, method: str, payload: Any = None, session_id: str = "s") -> Any:
    return await w.ocean.call_clog(clog_id="schedule", session_id=session_id, method=method, payload=payload)


async def test_the_same_spec_under_a_name_is_one_schedule_and_another_is_refused() -> None:
    async with hours() as w:
        first = await add(w, name="n")
        w.clock.advance(1_000)
        assert await add(w, name="n") == first
        with pytest.raises(CallRefused) as refused:
            await add(w, name="n", missed="all")
        assert (refused.value.code, refused.value.http_status) == ("schedule_exists", 409)
        elsewhere = await ask_clog(w, "add", HOURLY | {"name": "n"}, session_id="other")
        assert elsewhere["run_id"] != first
        assert await ask_clog(w, "find", "n") == first
        assert await ask_clog(w, "find", {"name": "m"}) is None


async def test_a_cancelled_schedule_fires_no_more_and_gives_its_name_back() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, name="n")
        await w.wait(HOUR)
        await w.ocean.cancel_run(run_id)
        await w.wait(2 * HOUR)
        assert await fired(w, run_id, begin) == [1]
        assert "next_at" not in (await look(w, run_id)).attributes
        again = await add(w, name="n", missed="all")
        assert again != run_id
        assert await ask_clog(w, "find", "n") == again
        assert await ask(w, run_id, "upcoming") == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cron": "61 * * * *"}, "the minute '61' is invalid"),
    ({"cron": None}, "exactly one of cron and every_ms must be given"),
    ({"every_ms": HOUR}, "exactly one of cron and every_ms must be given"),
    ({"cron": None, "every_ms": 999}, "every_ms: Input should be greater than or equal to 1000"),
    ({"cron": None, "every_ms": HOUR, "zone": "UTC"}, "zone must only be given with cron"),
    ({"anchor_at": 5}, "anchor_at must only be given with every_ms"),
    ({"zone": "Mars/Base"}, "there is no time zone 'Mars/Base'"),
    ({"missed": "never"}, "missed: Input should be 'skip', 'once' or 'all'"),
    ({"colour": "red"}, "colour: Extra inputs are not permitted"),
    ({"limit": True}, "limit: Input should be a valid integer"),
    ({"start_at": 10, "end_at": 10}, "end_at must be after start_at"),
    ({"end_at": 10}, "never fire: it must have a time after now"),
    ({"target": {}}, "target: exactly one of clog_id (its runs are created) and run_id"),
    ({"target": {"clog_id": "job", "times_as": "when"}}, "input must be an object"),
    ({"target": {"run_id": "nobody"}}, "there is no run 'nobody' in this session"),
    ({"target": {"run_id": "r", "priority": 1}}, "priority must not be given with run_id"),
    ({"target": {"run_id": "r"}, "overlap": "skip"}, "overlap must not be given with target.run_id"),
    ({"target": {"clog_id": "job", "attributes": {"a": "ä" * 129}}}, "a: must be a text of at most 256 bytes"),
    ({"target": {"clog_id": "job", "attributes": {"a": 2**54}}}, "attributes.a: must be a number within"),
    ({"target": {"clog_id": "job", "attributes": {str(n): n for n in range(15)}}}, "at most 14 items"),
    ({"target": {"clog_id": "job", "input": "x" * 600_000}}, "at most 512 KiB"),
    ({"name": "ä" * 65}, "name: must be a text of 1 to 128 bytes"),
    ({"target": {"clog_id": "jab"}}, "there is no clog 'jab'; did you mean 'job'?"),
    ({"target": {"clog_id": "closed"}}, "clog 'closed' allows 'create' only through its own routes"),
]


async def test_an_invalid_spec_is_refused_before_anything_is_stored() -> None:
    async with hours() as w:
        for changes, content in WRONG:
            request = {name: value for name, value in (HOURLY | changes).items() if value is not None}
            with pytest.raises(OceanError) as refused:
                await ask_clog(w, "add", request)
            assert content in refused.value.message
        with pytest.raises(InvalidValue, match="session_id must be given"):
            await w.ocean.call_clog(clog_id="schedule", method="add", payload=HOURLY)
        assert (await w.ocean.list_runs()).runs == ()
        assert await w.ocean.read_events() == []


async def test_an_invalid_run_created_without_add_fails_with_the_reason() -> None:
    async with hours() as w:
        for input in ({"cron": "61 * * * *", "target": {"clog_id": "job"}}, None):
            run = await w.ocean.create_run(session_id="s", clog_id="schedule", input=input)
            await w.drain()
            error = (await look(w, run.run_id)).error
            assert error is not None
            assert error["code"] == "invalid_value"


async def test_external_callers_create_schedules_only_by_add() -> None:
    async with hours() as w:
        request = {"sessionId": "s", "clogId": "schedule", "input": HOURLY}
        refused = await w.request("POST", "/v1/runs", json=request)
        assert (refused.status, refused.json()["error"]["code"]) == (403, "not_generic")
        made = await w.request("POST", "/v1/clogs/schedule/call/add", json={"sessionId": "s", "payload": HOURLY})
        run_id = made.json()["answer"]["run_id"]
        await w.drain()
        shown = await w.request("POST", f"/v1/runs/{run_id}/call/upcoming", json={"payload": {"n": 1}})
        assert len(shown.json()["answer"]) == 1
        signalled = await w.request("POST", f"/v1/runs/{run_id}/signal", json={})
        assert signalled.status == 403


async def test_a_key_for_one_session_reaches_no_other_by_a_schedule() -> None:
    async with hours() as w:
        await w.ocean.create_run(session_id="other", clog_id="slow", run_id="theirs")
        key = (await w.ocean.create_api_key("ada", ["signal", "read"], sessions=["s"])).key
        as_ada = {"Authorization": f"Bearer {key}"}

        async def add_in(session_id: str, fields: dict[str, Any]) -> int:
            request = {"sessionId": session_id, "payload": HOURLY | fields}
            return (await w.request("POST", "/v1/clogs/schedule/call/add", json=request, headers=as_ada)).status

        assert await add_in("s", {}) == 200
        assert await add_in("other", {}) == 404
        assert await add_in("s", {"target": {"run_id": "theirs"}}) == 400
        theirs = await w.ocean.call_clog(clog_id="schedule", session_id="other", method="add", payload=HOURLY)
        path = f"/v1/runs/{theirs['run_id']}/call/trigger"
        assert (await w.request("POST", path, json={}, headers=as_ada)).status == 404


async def test_upcoming_times_are_shown_in_their_zone() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, cron="30 9 * * *", zone="Asia/Kolkata", limit=2)
        shown = await ask(w, run_id, "upcoming", {"n": 9})
        assert len(shown) == 2
        assert all(each["local"].endswith("T09:30:00+05:30") for each in shown)
        assert [each["at"] > begin for each in shown] == [True, True]
        preview = await ask_clog(w, "upcoming", {"every_ms": HOUR, "n": 2})
        assert [each["at"] for each in preview] == [begin + HOUR, begin + 2 * HOUR]
        with pytest.raises(InvalidValue):
            await ask(w, run_id, "upcoming", {"n": 0})


async def test_a_schedule_shows_its_spec_and_its_progress() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, name="n")
        await w.wait(2 * HOUR)
        shown = await ask(w, run_id, "show")
        assert shown == {
            "run_id": run_id,
            "status": "waiting",
            "paused": False,
            "spec": HOURLY | {"name": "n"},
            "says": "At the start of every hour",
            "next_at": begin + 3 * HOUR,
            "fired": 2,
            "fired_at": begin + 2 * HOUR,
            "skipped": 0,
            "queued": [],
        }


async def test_a_new_timing_counts_from_now_and_the_rest_stays() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, missed="all")
        await w.wait(HOUR)
        w.clock.advance(2 * HOUR + 1)
        answer = await ask(w, run_id, "update", {"every_ms": 2 * HOUR, "anchor_at": begin})
        assert answer["next_at"] == begin + 4 * HOUR
        await w.drain()
        assert await fired(w, run_id, begin) == [1]
        assert (await look(w, run_id)).wake_at == begin + 4 * HOUR
        assert (await look(w, run_id)).attributes["plan"] == f"every {2 * HOUR} ms"
        await w.wait(3 * HOUR)
        assert await fired(w, run_id, begin) == [1, 4, 6]
        assert await emitted(w, run_id, "schedule.updated") == [{"fields": ["anchor_at", "every_ms"]}]


NO_CHANGES: list[tuple[dict[str, Any], str]] = [
    ({}, "the changes must be an object"),
    ({"overlap": "skip"}, "'overlap' cannot be changed"),
    ({"cron": "* * *"}, "has 3 fields"),
    ({"cron": None}, "exactly one of cron and every_ms must be given"),
    ({"end_at": 1}, "never fire; remove it instead"),
    ({"target": {"clog_id": "closed"}}, "allows 'create' only through"),
]


async def test_an_invalid_change_changes_nothing() -> None:
    async with hours() as w:
        run_id = await add(w)
        before = await ask(w, run_id, "show")
        for changes, content in NO_CHANGES:
            with pytest.raises(OceanError) as refused:
                await ask(w, run_id, "update", changes)
            assert content in refused.value.message
            assert await ask(w, run_id, "show") == before


async def test_an_update_during_a_firing_is_not_lost() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, end_at=begin + 9 * HOUR)
        w.clock.advance(HOUR)
        await ask(w, run_id, "update", {"end_at": None, "limit": 1, "grace_ms": 5})
        w.clock.advance(HOUR)
        await w.drain()
        assert await fired(w, run_id, begin) == [2]
        assert (await look(w, run_id)).status is RunStatus.DONE


async def test_trigger_fires_now_regardless_of_pause_limit_and_times() -> None:
    async with hours() as w:
        begin = w.clock.now()
        run_id = await add(w, limit=1, target={"clog_id": "job", "input": {"a": 1}, "times_as": "when"})
        await w.ocean.pause_run(run_id)
        w.clock.advance(60_000)
        made = await ask(w, run_id, "trigger")
        await w.drain()
        assert await w.ocean.result(made["run_id"]) == {
            "a": 1,
            "when": {"schedule_id": run_id, "intended_at": begin + 60_000, "previous_at": None},
        }
        await w.ocean.resume_run(run_id)
        await w.wait(HOUR)
        assert (await look(w, run_id)).output["fired"] == 1
        assert len((await w.ocean.list_runs(clog_id="job")).runs) == 2


async def test_a_trigger_under_a_request_key_fires_once() -> None:
    async with hours() as w:
        run_id = await add(w)
        for _ in range(2):
            await w.ocean.call_clog(run_id=run_id, method="trigger", request_key="by-hand-1")
        assert len((await w.ocean.list_runs(clog_id="job")).runs) == 1
