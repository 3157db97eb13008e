"""The document, section by section: a test for each, under its name."""

import json
import uuid
from typing import Any, get_args

import anyio
import pytest

from clogs.loop import api as running
from clogs.loop import routes
from clogs.loop.errors import CODES
from clogs.loop.records import LoopStatus, RunStatus
from clogs.loop.schemas import StepStatus
from ocean.testing.requests import WorldResponse
from tests.clogs.loop.kit import ANN, CLICK, ISSUE, REFUSED, TYPES, Town, error_of, town

pytestmark = pytest.mark.anyio

RUN = {"schemaVersion", "requestId", "issueId", "runId", "loopStatus"}


def is_uuid(text: str) -> bool:
    return str(uuid.UUID(text)) == text


def success_of(answer: WorldResponse) -> Any:
    content = answer.json()
    assert answer.status == 200, content
    assert set(content) >= RUN
    assert set(content) <= RUN | {"stepExecuted", "nextStep", "message"}
    assert content["schemaVersion"] == "loop.runNextStep.v1"
    assert content["requestId"] == answer.headers["x-request-id"]
    assert is_uuid(content["requestId"])
    assert is_uuid(content["runId"])
    return content


async def test_overview() -> None:
    """An issue goes through its whole plan, one step per click, and every response has the contract's shape."""
    async with town() as t:
        content = [success_of(await t.click()) for _ in range(9)]
        done = [each["stepExecuted"] for each in content[:8]]
        assert [(step["stepNumber"], step["stepType"]) for step in done] == [*enumerate(TYPES[:8], start=1)]
        assert {step["status"] for step in done} == {"completed"}
        assert [each.get("nextStep", {}).get("stepNumber") for each in content] == [2, 3, 4, 5, 6, 7, 8, None, None]
        assert [each["loopStatus"] for each in content] == ["active"] * 7 + ["completed"] * 2
        assert "stepExecuted" not in content[8]


async def test_run_next_step() -> None:
    async with town() as t:
        states = []
        for _ in range(8):
            await t.click()
            states.append((await t.seen())["issue"]["state"])
        assert states == [
            "CREATED", "SPEC_READY", "IMPLEMENTING_PREP", "REVIEW_READY", "DONE", "DONE", "VERIFIED", "CLOSED",
        ]  # fmt: skip


async def test_request() -> None:
    """Path, header and body; an empty body, or an empty object, is execute."""
    async with town() as t:
        bodies: tuple[Any, ...] = (None, b"", {}, {"mode": "execute"}, b' {"mode": "execute"} ')
        content = [success_of(await t.click(body, content_type="application/json")) for body in bodies]
        assert [each["stepExecuted"]["stepNumber"] for each in content] == [1, 2, 3, 4, 5]
        assert success_of(await t.click({"mode": "dryRun"}))["nextStep"]["stepNumber"] == 6


WRONG: list[tuple[Any, list[str]]] = [
    ({"mode": "Execute"}, ["mode"]),
    ({"mode": "dryrun"}, ["mode"]),
    ({"mode": None}, ["mode"]),
    ({"mode": 1}, ["mode"]),
    ({"mode": ["execute"]}, ["mode"]),
    ({"mode": "execute", "more": 1}, ["more"]),
    ({"Mode": "execute"}, ["Mode"]),
    ([], []),
    (b"null", []),
    (b"{", []),
    (b'{"mode": "execute", "mode": "dryRun"}', []),
    (b'{"mode": NaN}', []),
    (b"\xff", []),
]


async def test_validation() -> None:
    """No part of an invalid request is applied: the issue is unchanged."""
    async with town() as t:
        before = await t.seen()
        for body, places in WRONG:
            error = error_of(await t.click(body, content_type="application/json"), 400, "INVALID_REQUEST")
            assert [field["field"] for field in error.get("details", {}).get("fields", [])] == places, body
        assert (await t.seen())["issue"] == before["issue"]
        assert (await t.seen(f"/api/loop/issues/{ISSUE}/runs"))["runs"] == []


async def test_response() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            t.w.clock.advance(1_250)
            t.desk.go_on.set()
        content = success_of(t.responses[-1])
        assert content == {
            "schemaVersion": "loop.runNextStep.v1",
            "requestId": content["requestId"],
            "issueId": ISSUE,
            "runId": content["runId"],
            "stepExecuted": {
                "stepNumber": 5,
                "stepType": "S5_MERGE",
                "status": "completed",
                "startedAt": "2023-11-14T22:13:20.000Z",
                "completedAt": "2023-11-14T22:13:21.250Z",
                "durationMs": 1250,
            },
            "nextStep": {"stepNumber": 6, "stepType": "S6_OBSERVE"},
            "loopStatus": "active",
        }


async def test_the_closed_sets_are_the_documents() -> None:
    assert get_args(StepStatus) == ("pending", "running", "completed", "failed", "skipped")
    assert get_args(LoopStatus) == ("active", "completed", "failed", "paused")
    assert get_args(RunStatus) == ("pending", "running", "completed", "failed", "blocked")
    assert CODES == {
        "INVALID_REQUEST": 400,
        "UNAUTHORIZED": 401,
        "ISSUE_NOT_FOUND": 404,
        "LOOP_CONFLICT": 409,
        "INTERNAL_ERROR": 500,
    }


async def test_error_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """All five codes, in one envelope; an unexpected error shows no details."""
    async with town() as t:
        error_of(await t.click({"mode": "x"}), 400, "INVALID_REQUEST")
        error_of(await t.click(x_afu9_sub=""), 401, "UNAUTHORIZED")
        error_of(await t.click(issue_id="INVALID"), 404, "ISSUE_NOT_FOUND")
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            error_of(await t.click(), 409, "LOOP_CONFLICT")
            t.desk.go_on.set()

        async def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("secret")

        monkeypatch.setattr(t.loop, "run_next_step", broken)
        answer = await t.click()
        error = error_of(answer, 500, "INTERNAL_ERROR")
        assert set(error) == {"code", "message"}
        assert "secret" not in answer.body.decode()
        assert "Traceback" not in answer.body.decode()


async def test_e9_1_ctrl_3_locking_and_idempotency() -> None:
    """The issue is locked for every caller; the refusal names the holder and the expiry; its end removes the lock."""
    async with town() as t:
        await t.until_merge()
        began = t.w.clock.now()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            for actor in (ANN, "kim@example.com"):
                error = error_of(await t.click(x_afu9_sub=actor), 409, "LOOP_CONFLICT")
                assert error["details"]["owner"] == ANN
                assert error["details"]["expiresAt"] == "2023-11-14T22:18:20.000Z"
                assert t.w.clock.now() == began
            assert (await t.seen())["issue"]["lock"]["owner"] == ANN
            t.desk.go_on.set()
        assert success_of(t.responses[-1])["stepExecuted"]["stepNumber"] == 5
        assert "lock" not in (await t.seen())["issue"]
        assert len(t.desk.merged) == 1


async def test_two_quick_clicks_behavior() -> None:
    """First 200, second 409. The third is a replay with the key of the first, otherwise the next step."""
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:

            async def first() -> None:
                await t.click(idempotency_key="click-1")

            tasks.start_soon(first)
            await t.desk.at_work.wait()
            second = error_of(await t.click(idempotency_key="click-1"), 409, "LOOP_CONFLICT")
            assert (second["details"]["owner"], "expiresAt" in second["details"]) == (ANN, True)
            t.desk.go_on.set()
        third = await t.click(idempotency_key="click-1")
        assert (third.status, third.body) == (200, t.responses[-2].body)
        assert third.headers["x-request-id"] == t.responses[-2].headers["x-request-id"]
        assert success_of(await t.click())["stepExecuted"]["stepNumber"] == 6
        assert len(t.desk.merged) == 1


async def test_schema_versioning() -> None:
    """Every response has its schema version, refusals too."""
    async with town() as t:
        success_of(await t.click())
        error_of(await t.ask("PUT", CLICK), 405, "INVALID_REQUEST")
        versions = {
            "/api/loop/issues": "loop.issues.v1",
            f"/api/loop/issues/{ISSUE}": "loop.issues.v1",
            f"/api/loop/issues/{ISSUE}/runs": "loop.runs.v1",
            f"/api/loop/issues/{ISSUE}/events": "loop.events.v1",
        }
        for path, version in versions.items():
            content = await t.seen(path)
            assert content["schemaVersion"] == version
            assert is_uuid(content["requestId"])


async def test_implementation_details(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler calls exactly one function, with the fields of the request."""
    async with town() as t:
        called: list[Any] = []
        real = running.Loop.run_next_step

        async def noted(self: Any, ocean: Any, issue_id: str, **content: Any) -> Any:
            called.append((issue_id, content["mode"], content["actor"]))
            return await real(self, ocean, issue_id, **content)

        monkeypatch.setattr(running.Loop, "run_next_step", noted)
        await t.click({"mode": "dryRun"})
        await t.click()
        assert called == [(ISSUE, "dryRun", ANN), (ISSUE, "execute", ANN)]
        assert routes.ISSUE + "/run-next-step" in {route.path for route in t.loop.issues.routes}


async def _valid_execute(t: Town) -> None:
    assert success_of(await t.click({"mode": "execute"}))["stepExecuted"]["status"] == "completed"


async def _valid_dry_run(t: Town) -> None:
    assert "stepExecuted" not in success_of(await t.click({"mode": "dryRun"}))


async def _empty_body(t: Town) -> None:
    assert success_of(await t.click())["stepExecuted"]["stepNumber"] == 1


async def _invalid_mode(t: Town) -> None:
    error_of(await t.click({"mode": "invalid"}), 400, "INVALID_REQUEST")


async def _missing_authentication(t: Town) -> None:
    error_of(await t.click(x_afu9_sub=""), 401, "UNAUTHORIZED")
    error_of(await t.click({"mode": "invalid"}, x_afu9_sub=""), 401, "UNAUTHORIZED")


async def _no_such_issue(t: Town) -> None:
    error_of(await t.click(issue_id="AFU9-124"), 404, "ISSUE_NOT_FOUND")


async def _concurrent_execution(t: Town) -> None:
    await t.until_merge()
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(t.click)
    statuses = [answer.status for answer in t.responses[4:]]
    assert set(statuses) <= {200, 409}
    steps = [answer.json()["stepExecuted"]["stepNumber"] for answer in t.responses[4:] if answer.status == 200]
    assert steps == [*range(5, 5 + len(steps))]
    assert len(t.desk.merge_calls) == 1


async def _run_is_persisted(t: Town) -> None:
    run_id = success_of(await t.click())["runId"]
    assert (await t.seen(f"/api/loop/runs/{run_id}"))["run"]["status"] == "completed"


CASES = [
    _valid_execute, _valid_dry_run, _empty_body, _invalid_mode, _missing_authentication, _no_such_issue,
    _concurrent_execution, _run_is_persisted,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
async def test_testing(case: Any) -> None:
    async with town() as t:
        await case(t)


async def test_persistence_e9_1_ctrl_2() -> None:
    """A run is pending when it is made, running while it works, then completed, failed or blocked; with its times."""
    async with town(review="pending") as t:
        content = await t.clicks(4)
        runs = (await t.seen(f"/api/loop/issues/{ISSUE}/runs"))["runs"]
        assert [run["status"] for run in runs] == ["blocked", "completed", "completed", "completed"]
        assert [run["runId"] for run in runs] == [each["runId"] for each in reversed(content)]
        await t.loop.note_facts(t.w.ocean, ISSUE, {"review": "approved"}, actor=ANN)
        await t.click()
        t.desk.troubles.append(REFUSED)
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            (working,) = (await t.seen(f"/api/loop/issues/{ISSUE}/runs?limit=1"))["runs"]
            assert (working["status"], working["loopStatus"]) == ("running", "active")
            assert {"createdAt", "startedAt"} < set(working)
            steps = await t.seen(f"/api/loop/runs/{working['runId']}/steps")
            assert [(step["stepType"], step["status"]) for step in steps["steps"]] == [("S5_MERGE", "running")]
            assert "completedAt" not in json.dumps([working, steps])
            t.desk.go_on.set()
        ended = (await t.seen(f"/api/loop/runs/{working['runId']}"))["run"]
        assert (ended["status"], ended["message"]) == ("failed", "MERGE_REFUSED: the branch has conflicts")
        assert {"createdAt", "startedAt", "completedAt", "durationMs"} < set(ended)
        blocked = await t.seen(f"/api/loop/runs/{runs[0]['runId']}/steps")
        assert blocked["steps"] == []


async def test_locking_and_idempotency_e9_1_ctrl_3() -> None:
    """The lock lasts at most five minutes, a kept result an hour."""
    async with town() as t:
        await t.click(idempotency_key="other")
        first = await t.click(idempotency_key="k")
        t.w.clock.advance(3_599_999)
        assert (await t.click(idempotency_key="k")).body == first.body
        t.w.clock.advance(1)
        again = success_of(await t.click(idempotency_key="k"))
        assert again["stepExecuted"]["stepNumber"] == 3
        row = (await t.w.ocean.call_clog(clog_id="loop", method="show", payload=[ISSUE]))[ISSUE]
        assert len(row["answers"]) == 1
        assert row["answers"].popitem()[1]["run_id"] == again["runId"]


async def test_changelog() -> None:
    """v1: the answer; v1.1: its `runId`; v1.2: locks and replays. Each is still there."""
    async with town() as t:
        content = success_of(await t.click(if_match="1"))
        assert (await t.seen(f"/api/loop/runs/{content['runId']}"))["run"]["requestId"] == content["requestId"]
        assert success_of(await t.click(if_match="1")) == content
