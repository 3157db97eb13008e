"""Concurrent clicks and crashes: one effect, one owner, and the lock is removed."""

from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from clogs.loop import Facts, Loop, LoopPlan, OnPaper, Sight, Step, afu9
from ocean.testing import Outside, World, crash_everywhere, world
from tests.clogs.loop.kit import ANN, ISSUE, OPEN, WHO, Town, Workbench, error_of, town
from tests.http.kit import app_world
from tests.invariants import check

pytestmark = pytest.mark.anyio
MINUTE = 60_000


async def test_a_double_click_has_one_effect() -> None:
    """Both have read the issue before either has locked it: the version of the row lets one of them commit."""
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            for actor in (ANN, "kim@example.com"):
                tasks.start_soon(partial(t.click, x_afu9_sub=actor))
            await t.desk.at_work.wait()
            while len(t.responses) < 5:
                await anyio.lowlevel.checkpoint()
            t.desk.go_on.set()
        refused, done = t.responses[4:]
        assert error_of(refused, 409, "LOOP_CONFLICT")["details"]["runId"] == done.json()["runId"]
        assert done.json()["stepExecuted"]["stepNumber"] == 5
        assert len(t.desk.merge_calls) == 1
        assert len((await t.seen(f"/api/loop/issues/{ISSUE}/runs"))["runs"]) == 5


async def test_a_worker_that_dies_keeps_the_lock_until_another_has_finished_its_execution() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            t.w.clock.jump(30_000)  # its kernel lock lapses, it renews nothing
            error_of(await other_click(t), 409, "LOOP_CONFLICT")
            (run,) = (await t.seen(f"/api/loop/issues/{ISSUE}/runs?limit=1"))["runs"]
            assert run["status"] == "running"
            other = await t.w.instance(t.loop.clogs)
            await t.w.drain(other)
            tasks.cancel_scope.cancel()
        ended = (await t.seen(f"/api/loop/runs/{run['runId']}"))["run"]
        assert ended["status"] == "completed"
        assert (await t.seen())["issue"]["state"] == "DONE"
        assert (await t.click()).json()["stepExecuted"]["stepNumber"] == 6
        assert len({key for _, key in t.desk.merge_calls}) == len(t.desk.merged) == 1


async def other_click(t: Town) -> Any:
    return await t.ask("POST", f"/api/loop/issues/{ISSUE}/run-next-step", x_afu9_sub="kim@example.com")


async def test_an_expired_lock_is_taken_over_and_its_execution_has_ended() -> None:
    """No process has poked since the holder died. Its late effects happen under the same key."""
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            t.w.clock.jump(5 * MINUTE - 1)
            error_of(await other_click(t), 409, "LOOP_CONFLICT")
            t.w.clock.jump(1)
            taken = await other_click(t)
            assert taken.json()["stepExecuted"]["stepNumber"] == 5
            t.desk.go_on.set()  # the frozen one wakes up, merges again under its key, and finds its run gone
        frozen = t.responses[-1].json()
        assert (frozen["loopStatus"], frozen["message"].split(":")[0]) == ("failed", "deadline_exceeded")
        runs = (await t.seen(f"/api/loop/issues/{ISSUE}/runs?limit=2"))["runs"]
        assert [run["status"] for run in runs] == ["completed", "failed"]
        assert (await t.seen())["issue"]["state"] == "DONE"
        assert len({key for _, key in t.desk.merge_calls}) == len(t.desk.merged) == 1


async def test_a_click_before_the_issue_has_taken_the_result_is_the_next_step() -> None:
    """A process dies between the last commit of an execution and the tick of its issue."""
    async with town() as t:
        click = {"run_id": "run", "actor": ANN, "request_id": "r"}
        await t.w.ocean.call_clog(run_id=ISSUE, method="begin", payload=click)
        await t.w.ocean.advance(run_id="run")
        assert "lock" in (await t.seen())["issue"]
        assert (await t.click()).json()["stepExecuted"]["stepNumber"] == 2


@pytest.mark.sqlite
async def test_a_key_in_use_in_the_same_server_gets_the_holder_of_the_lock() -> None:
    desk = Workbench()
    loop = Loop(afu9(desk))
    async with app_world(more=loop.clogs) as h, anyio.create_task_group() as tasks:
        await loop.create_issue(h.w.ocean, "mend", actor=ANN, issue_id=ISSUE, facts=OPEN)
        path, headers = f"/api/loop/issues/{ISSUE}/run-next-step", WHO | {"Idempotency-Key": "k"}
        for _ in range(4):
            await h.post(path, headers=WHO)
        desk.hold()
        tasks.start_soon(partial(h.post, path, headers=headers))
        await desk.at_work.wait()
        refused = await h.post(path, headers=headers)
        assert (refused.status_code, refused.json()["error"]["details"]["owner"]) == (409, ANN)
        desk.go_on.set()


async def test_an_execution_that_is_cancelled_frees_its_issue() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            (run,) = (await t.seen(f"/api/loop/issues/{ISSUE}/runs?limit=1"))["runs"]
            cancelled = await t.w.request("POST", f"/v1/runs/{run['runId']}/cancel", json={})
            assert cancelled.status == 200
            await t.w.drain()
            assert "lock" not in (await t.seen())["issue"]
            tasks.cancel_scope.cancel()
        assert (await t.click()).json()["stepExecuted"]["stepNumber"] == 5


async def test_an_issue_whose_execution_was_deleted_is_free() -> None:
    async with town() as t:
        await t.until_merge()
        t.desk.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(t.click)
            await t.desk.at_work.wait()
            (run,) = (await t.seen(f"/api/loop/issues/{ISSUE}/runs?limit=1"))["runs"]
            tasks.cancel_scope.cancel()
        await t.w.ocean.delete_run(run["runId"])
        assert (await other_click(t)).json()["stepExecuted"]["stepNumber"] == 5


class Service(OnPaper):
    """External effects, in the world's own `Outside`."""

    outside: Outside

    async def merge(self, sight: Sight, key: str) -> Facts:
        return {"sha": await self.outside.call("merge", {"issue": sight.issue_id}, key=key, answer="sha-1")}


@pytest.mark.sqlite
async def test_a_crash_at_any_place_of_a_step_changes_nothing() -> None:
    """Also between the effect and its record: the state, the timeline and the external effects are the same."""
    service = Service()
    merge = afu9(service).find(5)
    assert merge is not None
    loop = Loop(
        LoopPlan("merge", [Step(number=5, type=merge.type, state=merge.state, to=merge.to, effect=merge.effect)])
    )

    async def until_done(w: World) -> Any:
        service.outside = w.outside
        await loop.create_issue(w.ocean, "mend", actor=ANN, issue_id=ISSUE)
        await w.ocean.call_clog(
            run_id=ISSUE, method="begin", payload={"run_id": "run", "actor": ANN, "request_id": "r", "tags": ["k"]}
        )
        await w.drain()
        shown = await loop.get_issue(w.ocean, ISSUE)
        return shown.wire(), [run.status for run in (await loop.list_runs(w.ocean, ISSUE))[0]]

    report = await crash_everywhere(loop.clogs, until_done)
    deeds = [point.deed for point in report.killed]
    assert any("after the outside call 'merge' had its effect" in deed for deed in deeds)
    assert any("after the function of step 'loop.run/effect' had ended" in deed for deed in deeds)


async def test_concurrent_issues_do_not_affect_each_other() -> None:
    loop = Loop(afu9(OnPaper()))
    async with world(clogs=loop.clogs) as w:
        for number in range(4):
            await loop.create_issue(w.ocean, "x", actor=ANN, issue_id=f"i-{number}", facts=OPEN)
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                path = f"/api/loop/issues/i-{number}/run-next-step"
                tasks.start_soon(partial(w.request, "POST", path, headers=WHO))
        found, _ = await loop.list_issues(w.ocean)
        assert [issue.version for issue in found] == [2, 2, 2, 2]
        await check(w)
