"""Missions and steps: order, claims, leases, failures, dead letters, and workers that die."""

from typing import Any

import anyio
import pytest

from clogs.ops import Ops
from clogs.ops.steps import is_out_of_retries
from ocean import RunStatus, StoreBusy
from tests.clogs.ops.kit import DAY_MS, MINUTE_MS, Loop, loop

pytestmark = pytest.mark.anyio

TWICE = {"kind": "noop", "max_retries": 2}


def noop(**params: Any) -> dict[str, Any]:
    return {"kind": "noop", "params": params}


async def test_steps_exist_from_the_start_and_only_the_next_is_claimable() -> None:
    async with loop() as ops:
        mission = await ops.mission(noop(n=1), noop(n=2), noop(n=3))
        assert await ops.steps(mission) == [("queued", None)] * 3
        for n in (1, 2, 3):
            step = await ops.claim()
            assert step["params"] == {"n": n}
            assert await ops.claim() is None, "the next one waits for this"
            assert await ops.mission_status(mission) == "running"
            await ops.complete(step, result={"done": n})
        assert await ops.steps(mission) == [("succeeded", None)] * 3
        assert await ops.mission_status(mission) == "succeeded", "within the request that completed the last"
        (content,) = await ops.rows("ops_agent_events?type=eq.mission:complete")
        assert (content["mission_id"], content["data"]["status"]) == (mission, "succeeded")
        run = await ops.w.ocean.get_run(mission)
        assert run is not None
        assert run.status is RunStatus.DONE


async def test_workers_claim_by_executor_which_is_openclaw_by_default() -> None:
    async with loop() as ops:
        await ops.mission(noop())
        await ops.mission({"kind": "noop", "executor": "radar"})
        assert await ops.claim(p_executor="minion") is None
        assert (await ops.claim(p_executor="radar"))["executor"] == "radar"
        assert (await ops.claim(p_executor=["minion", "openclaw"]))["executor"] == "openclaw"


async def test_twenty_concurrent_workers_get_each_step_once() -> None:
    async with loop() as ops:
        missions = {await ops.mission(noop(n=n)) for n in range(5)}
        got: list[str] = []

        async def claim(name: str) -> None:
            for step in await ops.ops.ops_claim_next_step(5, p_worker_id=name):
                got.append(step["mission_id"])

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(claim, f"w-{number}")
        assert sorted(got) == sorted(missions)
        assert len(await ops.rows("ops_action_runs")) == 5


async def test_after_a_reported_failure_without_retries_the_rest_end_failed_too() -> None:
    async with loop() as ops:
        mission = await ops.mission(noop(), noop(), noop())
        await ops.complete(await ops.claim())
        failed = await ops.complete(await ops.claim(), "failed", last_error="no route to host", result={"tried": 1})
        assert (failed["status"], failed["failure_count"], failed["result"]) == ("failed", 1, {"tried": 1})
        assert await ops.steps(mission) == [
            ("succeeded", None),
            ("failed", "no route to host"),
            ("failed", "Mission failed"),
        ]
        assert await ops.mission_status(mission) == "failed"
        assert await ops.claim() is None
        (content,) = await ops.rows("ops_agent_events?type=eq.mission:complete")
        assert content["data"] == {"mission_id": mission, "status": "failed", "step_id": failed["id"]}
        (details,) = await ops.rows("ops_agent_events?type=eq.step:failed")
        error = {"error": "no route to host", "failure_count": 1}
        assert details["data"] == {"step_id": failed["id"], "kind": "noop", **error}


@pytest.mark.parametrize(
    ("failures", "most", "is_lapsed", "is_final"),
    [
        (1, None, True, False),
        (1_000, None, True, False),
        (1, None, False, True),
        (1, 2, True, False),
        (2, 2, True, True),
        (1, 2, False, False),
        (2, 2, False, True),
        (1, 1, False, True),
    ],
)
def test_when_a_step_is_out_of_retries(failures: int, most: int | None, is_lapsed: bool, is_final: bool) -> None:
    assert is_out_of_retries(failures, most, is_lapsed) is is_final


async def test_a_worker_killed_with_no_other_alive_still_ends_its_mission() -> None:
    async with loop() as ops:
        mission = await ops.mission(TWICE)
        for failures in (1, 2):
            step = await ops.claim(minutes=1)
            assert step["failure_count"] == failures - 1
            ops.w.clock.advance(MINUTE_MS)
            await ops.w.ocean.advance()
        assert await ops.steps(mission) == [("failed", "Lease expired")]
        assert await ops.mission_status(mission) == "failed"
        (letter,) = await ops.rows(f"ops_step_dead_letters?mission_id=eq.{mission}")
        assert (letter["step_id"], letter["failure_count"], letter["last_error"]) == (step["id"], 2, "Lease expired")
        runs = await ops.rows("ops_action_runs?order=started_at.asc")
        assert [(run["status"], run["error"]) for run in runs] == [("failed", "Lease expired")] * 2


async def test_without_a_limit_a_lapsed_lease_is_requeued_for_ever_and_claims_alone_get_it_back() -> None:
    async with loop() as ops:
        mission = await ops.mission(noop())
        for failures in range(4):
            step = await ops.claim(minutes=1)
            assert step["failure_count"] == failures
            ops.w.clock.advance(MINUTE_MS)
        await ops.complete(await ops.claim(), result=7)
        assert await ops.mission_status(mission) == "succeeded"


async def test_a_lease_lives_as_long_as_it_is_renewed_and_a_lost_one_changes_nothing() -> None:
    async with loop() as ops:
        mission = await ops.mission(noop())
        step = await ops.claim(minutes=2)
        path, lease = f"ops_mission_steps/{step['id']}", {"lease_id": step["lease_id"]}
        for _ in range(5):
            ops.w.clock.advance(MINUTE_MS)
            await ops.w.drain()
            renewed = await ops.answer("POST", f"{path}/renew", lease)
            assert renewed["lease_expires_at"] > step["lease_expires_at"]
        ops.w.clock.advance(2 * MINUTE_MS)
        await ops.w.drain()
        other = await ops.claim()
        assert other["id"] == step["id"]
        assert await ops.refusal("POST", f"{path}/renew", lease) == (409, "OPS_004")
        late = {**lease, "status": "succeeded", "result": "late"}
        assert await ops.refusal("POST", f"{path}/complete", late) == (409, "OPS_004")
        assert await ops.steps(mission) == [("running", "Lease expired")]
        assert (await ops.complete(other, result="in time"))["result"] == "in time"


async def test_a_completion_is_repeatable_and_another_one_is_refused() -> None:
    async with loop() as ops:
        await ops.mission(noop(), noop())
        step = await ops.claim()
        first = await ops.complete(step, result=1)
        assert await ops.complete(step, result=1) == first
        path = f"ops_mission_steps/{step['id']}/complete"
        body = {"lease_id": step["lease_id"], "status": "failed"}
        assert await ops.refusal("POST", path, body) == (409, "lease_completed")
        following = await ops.claim()
        assert following["id"] != step["id"]
        strange = {"lease_id": following["lease_id"], "status": "succeeded"}
        assert await ops.refusal("POST", path, strange) == (409, "OPS_004"), "a lease of another step"
        assert await ops.refusal("POST", path, {"lease_id": "lease_none", "status": "succeeded"}) == (409, "OPS_004")
        assert (await ops.rows(f"ops_mission_steps?id=eq.{following['id']}"))[0]["status"] == "running"


async def test_params_and_results_up_to_the_limit_are_stored_and_larger_ones_refused() -> None:
    async with loop() as ops:
        much = "x" * (255 * 1024)
        mission = await ops.mission({"kind": "noop", "params": {"much": much}, "max_retries": 1})
        step = await ops.claim()
        body = {"lease_id": step["lease_id"], "status": "failed", "result": much + "x" * 2_000}
        assert await ops.refusal("POST", f"ops_mission_steps/{step['id']}/complete", body) == (400, "22001")
        failed = await ops.complete(step, "failed", result=much, last_error="y" * 9_000)
        assert (failed["result"], len(failed["last_error"])) == (much, 2_000)
        assert await ops.mission_status(mission) == "failed"
        assert (await ops.rows("ops_step_dead_letters"))[0]["params"] == {"much": much}


async def test_a_step_is_stale_if_not_renewed_in_time_however_long_the_lease() -> None:
    async with loop() as ops:
        await ops.mission(noop())
        await ops.mission(noop())
        quiet, busy = await ops.claim(minutes=600), await ops.claim(minutes=600)
        mission, other = quiet["mission_id"], busy["mission_id"]
        ops.w.clock.advance(20 * MINUTE_MS)
        await ops.answer("POST", f"ops_mission_steps/{busy['id']}/renew", {"lease_id": busy["lease_id"]})
        ops.w.clock.advance(20 * MINUTE_MS)
        assert await ops.rpc("ops_recover_stale_steps", p_threshold_minutes=30) == [{"recovered_steps": 1}]
        assert await ops.rpc("ops_recover_stale_steps", p_threshold_minutes=30) == [{"recovered_steps": 0}]
        assert await ops.steps(mission) == [("failed", "Stale: no progress within threshold")]
        assert (await ops.mission_status(mission), await ops.mission_status(other)) == ("failed", "running")
        late = {"lease_id": quiet["lease_id"], "status": "succeeded"}
        assert await ops.refusal("POST", f"ops_mission_steps/{quiet['id']}/complete", late) == (409, "OPS_004")
        await ops.complete(busy)


async def test_a_report_between_the_stale_mark_and_the_cancelled_lease_comes_too_late() -> None:
    async with loop() as ops:
        mission = await ops.mission(noop())
        step = await ops.claim(minutes=600)
        ops.w.clock.advance(40 * MINUTE_MS)
        # The process that recovers dies here: the step is failed, its attempt not yet cancelled.
        await ops.w.ocean.call_clog(run_id=step["id"], method="fail_if_stale", payload=30 * MINUTE_MS)
        late = {"lease_id": step["lease_id"], "status": "succeeded", "result": 1}
        assert await ops.refusal("POST", f"ops_mission_steps/{step['id']}/complete", late) == (409, "OPS_005")
        await ops.w.drain()
        assert await ops.steps(mission) == [("failed", "Stale: no progress within threshold")]
        assert await ops.mission_status(mission) == "failed"


async def dead(ops: Loop, *steps: Any) -> tuple[str, Any]:
    """Return a mission whose first step has failed permanently, and its dead letter."""
    mission = await ops.mission(*steps)
    await ops.complete(await ops.claim(), "failed", last_error="broken")
    (letter,) = await ops.rows(f"ops_step_dead_letters?mission_id=eq.{mission}")
    return mission, letter


async def test_a_dead_letter_is_redriven_once_and_the_same_mission_continues() -> None:
    async with loop() as ops:
        mission, letter = await dead(ops, noop(), noop())
        path = f"ops_step_dead_letters/{letter['id']}/redrive"
        again = await ops.answer("POST", path)
        assert (again["status"], again["failure_count"], again["id"]) == ("queued", 0, letter["step_id"])
        assert await ops.mission_status(mission) == "running"
        assert [status for status, _ in await ops.steps(mission)] == ["queued", "queued"]
        assert await ops.refusal("POST", path) == (409, "P0001")
        await ops.complete(await ops.claim())
        await ops.complete(await ops.claim())
        assert await ops.mission_status(mission) == "succeeded"
        assert len(await ops.rows("ops_missions")) == len(await ops.rows("ops_step_dead_letters")) == 1
        assert await ops.refusal("POST", path) == (409, "P0001")


async def test_a_redriven_step_that_fails_again_has_a_second_letter_and_only_that_can_be_redriven() -> None:
    async with loop() as ops:
        _, letter = await dead(ops, noop())
        await ops.answer("POST", f"ops_step_dead_letters/{letter['id']}/redrive")
        await ops.complete(await ops.claim(), "failed", last_error="broken again")
        newest, oldest = await ops.rows("ops_step_dead_letters?order=created_at.desc")
        second = newest if newest["id"] != letter["id"] else oldest
        assert second["last_error"] == "broken again"
        assert await ops.refusal("POST", f"ops_step_dead_letters/{letter['id']}/redrive") == (409, "P0001")
        await ops.answer("POST", f"ops_step_dead_letters/{second['id']}/redrive")


async def test_ten_concurrent_redrives_make_one_attempt() -> None:
    async with loop() as ops:
        _, letter = await dead(ops, noop())
        statuses: list[int] = []

        async def redrive() -> None:
            statuses.append((await ops.ask("POST", f"ops_step_dead_letters/{letter['id']}/redrive")).status)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(redrive)
        assert sorted(statuses) == [200] + [409] * 9
        assert await ops.claim() is not None
        assert await ops.claim() is None


async def test_a_failed_mission_is_closed_after_thirty_days_and_then_stays_as_it_is() -> None:
    async with loop() as ops:
        mission, letter = await dead(ops, noop(), noop())
        ops.w.clock.jump(30 * DAY_MS)
        await ops.w.drain()
        run = await ops.w.ocean.get_run(mission)
        assert run is not None
        assert run.status is RunStatus.FAILED
        assert (await ops.refusal("POST", f"ops_step_dead_letters/{letter['id']}/redrive"))[0] == 409
        assert await ops.steps(mission) == [("failed", "broken"), ("failed", "Mission failed")]


async def test_a_claim_whose_response_is_lost_costs_one_lease_and_no_step() -> None:
    async with loop() as ops:
        mission = await ops.mission(noop())
        await ops.w.ocean.claim_work("ops-attempts", "w", 60_000)  # and the process dies: the lease is lost
        assert await ops.steps(mission) == [("queued", None)]
        assert await ops.rows("ops_action_runs") == []
        ops.w.clock.advance(60_000)
        step = await ops.claim()
        await ops.complete(step)
        assert await ops.mission_status(mission) == "succeeded"


class Unlucky(Ops):
    """An Ocean whose database is busy right after a step was leased."""

    async def call_on(self, run_id: str, method: str, *more: Any, **named: Any) -> Any:
        if method == "reserve":
            raise StoreBusy("the database is locked")
        return await super().call_on(run_id, method, *more, **named)


async def test_a_claim_that_cannot_be_recorded_is_released_at_once_and_costs_the_step_nothing() -> None:
    async with loop() as ops:
        await ops.mission({"kind": "noop", "max_retries": 1})
        with pytest.raises(StoreBusy):
            await Unlucky(ops.w.ocean).ops_claim_next_step(5)
        step = await ops.claim()
        assert (step["status"], step["failure_count"]) == ("running", 0)
