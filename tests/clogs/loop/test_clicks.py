"""The response to a click that does not succeed: blocked, failed, on hold; and dry runs."""

from functools import partial

import anyio
import pytest

from ocean import CallRefused
from ocean.testing import World
from tests.clogs.loop.kit import ANN, ISSUE, REFUSED, Town, error_of, town
from tests.lifecycle.acting import dump, let_others_go_on

pytestmark = pytest.mark.anyio


async def test_a_blocked_click_is_paused_with_its_reason_and_the_next_checks_the_gate_again() -> None:
    async with town(spec=None) as t:
        await t.click()
        for _ in range(2):
            content = (await t.click(idempotency_key="k")).json()
            assert (content["loopStatus"], content["message"]) == (
                "paused",
                "SPEC_MISSING: the issue has no specification yet",
            )
            assert content["nextStep"] == {"stepNumber": 2, "stepType": "S2_SPEC_GATE"}
            assert "stepExecuted" not in content
            run = (await t.seen(f"/api/loop/runs/{content['runId']}"))["run"]
            assert (run["status"], run["blockerCode"]) == ("blocked", "SPEC_MISSING")
        changed = await t.ask("PATCH", f"/api/loop/issues/{ISSUE}", {"facts": {"spec": "here"}}, if_match='"2"')
        assert (changed.status, changed.headers["etag"]) == (200, '"3"')
        assert (await t.click(idempotency_key="k")).json()["stepExecuted"]["stepNumber"] == 2


async def test_a_step_that_fails_permanently_is_200_failed_and_its_remedy_is_next() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.troubles.append(REFUSED)
        failed = await t.click(idempotency_key="k")
        content = failed.json()
        assert (failed.status, content["loopStatus"], content["stepExecuted"]["status"]) == (200, "failed", "failed")
        assert content["nextStep"] == {"stepNumber": 9, "stepType": "S9_REMEDIATE"}
        held = (await t.click(idempotency_key="k")).json()
        assert (held["stepExecuted"]["stepNumber"], held["loopStatus"]) == (9, "paused")
        assert (await t.seen())["issue"]["state"] == "HOLD"
        paused = (await t.click()).json()
        assert (paused["loopStatus"], paused["message"].split(":")[0]) == ("paused", "ISSUE_ON_HOLD")
        resumed = await t.ask("POST", f"/api/loop/issues/{ISSUE}/resume")
        assert resumed.json()["issue"]["state"] == "REVIEW_READY"
        assert (await t.click()).json()["stepExecuted"] | {"startedAt": 0, "completedAt": 0} == {
            "stepNumber": 5,
            "stepType": "S5_MERGE",
            "status": "completed",
            "startedAt": 0,
            "completedAt": 0,
            "durationMs": 0,
        }
        keys = [key for _, key in t.desk.merge_calls]
        assert len({*keys}) == 2, "a merge that was refused permanently is retried under a new key"


async def test_only_an_issue_on_hold_is_resumed() -> None:
    async with town() as t:
        error_of(await t.ask("POST", f"/api/loop/issues/{ISSUE}/resume"), 409, "LOOP_CONFLICT")
        error_of(await t.ask("POST", "/api/loop/issues/no/resume"), 404, "ISSUE_NOT_FOUND")


async def test_an_effect_that_raises_is_retried_under_the_same_key_and_the_step_succeeds() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.troubles_after += [ConnectionError("the answer was lost")]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await wait_for_back_off(t.w)
            t.w.clock.advance(1_000)
        assert t.responses[-1].json()["stepExecuted"]["status"] == "completed"
        assert len(t.desk.merge_calls) == 2
        assert len(t.desk.merged) == 1


async def test_an_effect_that_keeps_raising_fails_the_step_and_a_later_click_uses_the_same_key() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.troubles_after += [ConnectionError("the answer was lost")] * 3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            for attempt, ms in ((1, 1_000), (2, 2_000)):
                await wait_for_back_off(t.w, attempt)
                t.w.clock.advance(ms)
        content = t.responses[-1].json()
        assert (t.responses[-1].status, content["loopStatus"], content["stepExecuted"]["status"]) == (
            200,
            "failed",
            "failed",
        )
        assert content["message"].endswith("the answer was lost")
        assert content["nextStep"] == {"stepNumber": 5, "stepType": "S5_MERGE"}
        assert "Traceback" not in t.responses[-1].body.decode()
        assert (await t.click()).json()["stepExecuted"]["status"] == "completed"
        assert len({key for _, key in t.desk.merge_calls}) == 1
        assert len(t.desk.merged) == 1


async def wait_for_back_off(w: World, attempt: int = 1) -> None:
    """Wait until an execution with this many failures waits for its next attempt."""
    while True:
        seen = w.ocean.commits_seen()
        waiting = (await w.ocean.list_runs(clog_id="loop.run", status="pending")).runs
        if any(run.attempt == attempt for run in waiting):
            return
        await w.ocean.next_change(seen, wait_ms=60_000)


async def test_a_gate_that_raises_is_not_blocked_but_tried_again() -> None:
    async with town() as t:
        await t.clicks(3)
        t.desk.gate_troubles.append(OSError("no route"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await wait_for_back_off(t.w)
            t.w.clock.advance(1_000)
        assert t.responses[-1].json()["stepExecuted"]["status"] == "completed"


async def test_a_dry_run_reports_step_gate_and_blocker_and_changes_no_row_of_any_table() -> None:
    async with town(review="changes_requested", verdict="red") as t:
        await t.clicks(3)
        before, runs = await dump(t.w), set()
        for _ in range(2):
            content = (await t.click({"mode": "dryRun"}, idempotency_key="k")).json()
            assert (content["loopStatus"], content["message"]) == (
                "paused",
                "CHANGES_REQUESTED: the reviewers have requested changes",
            )
            assert content["nextStep"]["stepNumber"] == 4
            runs |= {content["runId"], content["requestId"]}
        t.desk.gate_troubles.append(OSError("no route"))
        content = (await t.click({"mode": "dryRun"})).json()
        assert (content["loopStatus"], content["message"]) == ("failed", "OSError: no route")
        assert await dump(t.w) == before
        assert len(runs) == 4
        for run_id in runs:
            error_of(await t.ask("GET", f"/api/loop/runs/{run_id}"), 404, "ISSUE_NOT_FOUND")


async def test_a_dry_run_does_not_call_the_effect() -> None:
    async with town() as t:
        await t.until_merge()
        content = (await t.click({"mode": "dryRun"})).json()
        assert (content["loopStatus"], content["message"]) == ("active", "would execute step 5, S5_MERGE")
        assert t.desk.merge_calls == []
        error_of(await t.click({"mode": "dryRun"}, if_match="99"), 409, "LOOP_CONFLICT")


async def test_the_verbs_are_available_in_python_with_the_same_refusals() -> None:
    async with town() as t:
        answer = await t.loop.run_next_step(t.w.ocean, ISSUE, actor=ANN)
        assert (answer.step_executed and answer.step_executed.step_type, answer.loop_status) == ("S1_PICK", "active")
        run = await t.loop.get_run(t.w.ocean, answer.run_id)
        assert (run.status, run.request_id) == ("completed", answer.request_id)
        assert [each.run_id for each in (await t.loop.list_runs(t.w.ocean, ISSUE))[0]] == [answer.run_id]
        for ask in (
            t.loop.run_next_step(t.w.ocean, "no", actor=ANN),
            t.loop.get_issue(t.w.ocean, "no"),
            t.loop.get_run(t.w.ocean, ISSUE),
            t.loop.run_next_step(t.w.ocean, answer.run_id, actor=ANN),
        ):
            with pytest.raises(CallRefused) as refused:
                await ask
            assert (refused.value.code, refused.value.http_status) == ("ISSUE_NOT_FOUND", 404)


async def test_an_unknown_mode_executes_nothing_in_python_either() -> None:
    async with town() as t:
        with pytest.raises(CallRefused) as refused:
            await t.loop.run_next_step(t.w.ocean, ISSUE, actor=ANN, mode="dryrun")  # type: ignore[arg-type]
        assert refused.value.code == "INVALID_REQUEST"
        assert (await t.loop.list_runs(t.w.ocean, ISSUE))[0] == []


async def test_a_click_whose_execution_takes_too_long_names_its_run_and_its_key_finds_the_result() -> None:
    async with town() as t:
        await t.w.ocean.pause_clog("loop.run")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(t.click, idempotency_key="k"))
            for _ in range(5):  # less than the five minutes of the lock
                await let_others_go_on(t.w)
                t.w.clock.advance(10_000)
        content = t.responses[-1].json()
        assert (content["loopStatus"], content["stepExecuted"]["status"]) == ("active", "pending")
        assert content["message"] == f"still running: GET /api/loop/runs/{content['runId']}"
        assert (await t.seen(f"/api/loop/runs/{content['runId']}"))["run"]["status"] == "pending"
        error_of(await t.click(idempotency_key="k"), 409, "LOOP_CONFLICT")
        await t.w.ocean.resume_clog("loop.run")
        await t.w.drain()
        ended = (await t.click(idempotency_key="k")).json()
        assert (ended["runId"], ended["stepExecuted"]["status"]) == (content["runId"], "completed")


async def test_ids_that_no_issue_can_have_are_refused_or_not_found() -> None:
    async with town() as t:
        for issue_id in ("%00", "x" * 2_000):
            error_of(await t.click(issue_id=issue_id), 400, "INVALID_REQUEST")
        for issue_id in ("%20", "a%2Fb", "AFU9-123%20"):
            error_of(await t.click(issue_id=issue_id), 404, "ISSUE_NOT_FOUND")


async def test_an_effect_is_on_record_before_it_happens() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            assert t.desk.merged == {}
            details = (await t.seen(f"/api/loop/issues/{ISSUE}/events"))["events"]
            assert [event["type"] for event in details[:2]] == ["loop_effect_intended", "loop_run_created"]
            assert details[0]["payload"]["step"] == 5
            t.desk.go_on.set()


async def _events(t: Town, query: str = "") -> list[str]:
    return [event["type"] for event in (await t.seen(f"/api/loop/issues/{ISSUE}/events{query}"))["events"]]


async def test_events_are_newest_first_in_pages_one_end_for_each_run() -> None:
    async with town(review="pending") as t:
        await t.clicks(4)
        details = await _events(t)
        assert details == [
            "loop_run_blocked", "loop_run_created",
            "loop_run_finished", "loop_effect_intended", "loop_run_created",
            "loop_run_finished", "loop_run_created",
            "loop_run_finished", "loop_run_created",
        ]  # fmt: skip
        pages: list[str] = []
        query = "?limit=4"
        while True:
            page = await t.seen(f"/api/loop/issues/{ISSUE}/events{query}")
            pages += [event["type"] for event in page["events"]]
            if "nextBefore" not in page:
                break
            query = f"?limit=4&before={page['nextBefore']}"
        assert pages == details
        (blocked,) = (await t.seen(f"/api/loop/issues/{ISSUE}/events?limit=1"))["events"]
        assert blocked["payload"] | {"runId": ""} == {
            "runId": "",
            "step": 4,
            "stateBefore": "IMPLEMENTING_PREP",
            "stateAfter": "IMPLEMENTING_PREP",
            "blockerCode": "REVIEW_PENDING",
        }
        error_of(await t.ask("GET", f"/api/loop/issues/{ISSUE}/events?before=x"), 400, "INVALID_REQUEST")
        error_of(await t.ask("GET", f"/api/loop/issues/{ISSUE}/events?limit=0"), 400, "INVALID_REQUEST")
