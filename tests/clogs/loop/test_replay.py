"""Replays: the same response, byte for byte, for a repeat of the request and for no other."""

import anyio
import pytest

from tests.clogs.loop.kit import ISSUE, error_of, town

pytestmark = pytest.mark.anyio


async def test_without_a_header_every_click_is_the_next_step() -> None:
    async with town() as t:
        assert [content["stepExecuted"]["stepNumber"] for content in await t.clicks(3)] == [1, 2, 3]


async def test_a_key_is_an_actors_own_and_an_issues() -> None:
    async with town() as t:
        await t.issue(issue_id="AFU9-124")
        first = await t.click(idempotency_key="k")
        assert (await t.click(idempotency_key="k", x_afu9_sub="kim")).json()["stepExecuted"]["stepNumber"] == 2
        other = await t.click(idempotency_key="k", issue_id="AFU9-124")
        assert (other.json()["issueId"], other.json()["stepExecuted"]["stepNumber"]) == ("AFU9-124", 1)
        assert (await t.click(idempotency_key="k")).body == first.body


async def test_a_version_is_executed_once_and_then_replayed() -> None:
    async with town() as t:
        first = await t.click(if_match='"1"')
        assert first.json()["stepExecuted"]["stepNumber"] == 1
        assert (await t.click(if_match="1")).body == first.body
        assert (await t.seen())["issue"]["version"] == 2
        error = error_of(await t.click(if_match="1", x_afu9_sub="kim"), 409, "LOOP_CONFLICT")
        assert error["details"] == {"version": 2}
        error_of(await t.click(if_match="3"), 409, "LOOP_CONFLICT")
        assert (await t.click(if_match="2")).json()["stepExecuted"]["stepNumber"] == 2


async def test_a_blocked_version_is_not_kept_and_can_be_tried_again() -> None:
    async with town(spec=None) as t:
        await t.click()
        assert [(await t.click(if_match="2")).json()["loopStatus"] for _ in range(2)] == ["paused", "paused"]
        await t.ask("PATCH", f"/api/loop/issues/{ISSUE}", {"facts": {"spec": "x"}})
        error_of(await t.click(if_match="2"), 409, "LOOP_CONFLICT")
        assert (await t.click(if_match="3")).json()["loopStatus"] == "active"


async def test_an_invalid_version_is_refused() -> None:
    async with town() as t:
        for given in ("*", "x", '"1', "-1", "1.0", 'W/"1"', "1, 2", "9" * 16):
            error_of(await t.click(if_match=given), 400, "INVALID_REQUEST")


async def test_a_lost_response_is_found_by_its_key() -> None:
    """The process dies after it has created the execution; another one finishes it."""
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:

            async def lost() -> None:
                await t.click(idempotency_key="k")

            tasks.start_soon(lost)
            await t.desk.at_work.wait()
            tasks.cancel_scope.cancel()
        assert len(t.responses) == 4
        await t.w.drain()
        found = await t.click(idempotency_key="k")
        assert found.json()["stepExecuted"] | {"startedAt": "", "completedAt": ""} == {
            "stepNumber": 5,
            "stepType": "S5_MERGE",
            "status": "completed",
            "startedAt": "",
            "completedAt": "",
            "durationMs": 0,
        }
        assert len(t.desk.merged) == 1
        assert (await t.click(idempotency_key="k")).body == found.body


async def test_a_kept_result_whose_run_was_deleted_is_gone_and_the_key_is_free() -> None:
    async with town() as t:
        first = await t.click(idempotency_key="k")
        await t.w.ocean.delete_run(first.json()["runId"])
        assert (await t.click(idempotency_key="k")).json()["stepExecuted"]["stepNumber"] == 2


async def test_a_request_id_is_a_uuid_and_that_of_the_request_if_valid() -> None:
    async with town() as t:
        mine = "0190b8a2-7c44-7d3a-9d5e-0f5f6f0a1b2c"
        content = await t.click(x_request_id=mine)
        assert (content.json()["requestId"], content.headers["x-request-id"]) == (mine, mine)
        other = await t.click(x_request_id="trace-17")
        assert other.json()["requestId"] == other.headers["x-request-id"] != "trace-17"
        assert len(other.json()["requestId"]) == 36
        error_of(await t.click({"mode": "x"}, x_request_id="trace-17"), 400, "INVALID_REQUEST")
