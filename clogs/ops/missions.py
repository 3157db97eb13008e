"""Missions: all steps exist from the start and become claimable one by one; a failed step fails the mission."""

import uuid
from typing import Any

from clogs.ops.policies import worker_policy_of
from clogs.ops.records import MISSIONS, STEPS, Row, publish, record_clog, state_of
from clogs.ops.validation import executor_of
from ocean import Done, Failed, Ok, Outcome, Tick

REDRIVABLE_MS = 30 * 86_400_000
"""How long a failed mission can be continued."""

missions = record_clog(MISSIONS)


@missions.on_advance
async def advance(tick: Tick) -> Outcome:
    row, is_stored = await state_of(tick)
    if not is_stored:
        return await _begin(tick, row)
    if tick.timer == "close":
        return Failed({"code": "mission_failed", "message": f"mission {tick.run_id} failed and was not redriven"})
    match tick.input:
        case _ if tick.child is not None:
            return await _step_ended(tick, row)
        case {"do": "run"} if row["status"] == "approved":
            await _store(tick, {**row, "status": "running"})
        case {"do": "fail", "step_id": step_id} if row["status"] in ("approved", "running"):
            await _fail(tick, row, step_id)
        case {"do": "redrive", "step_id": step_id} if row["status"] == "failed":
            await _continue(tick, row, step_id)
    return Ok()


async def _begin(tick: Tick, row: Row) -> Outcome:
    """Create all steps in one commit. Their ids are derived from their position, so none is created twice."""
    retries = worker_policy_of(row["policy_snapshot"]).max_retries
    steps = [str(uuid.uuid5(uuid.NAMESPACE_URL, f"ops:{tick.run_id}:{n}")) for n in range(len(row["plan"]))]
    for index, (step_id, step) in enumerate(zip(steps, row["plan"], strict=True)):
        made = new_step(tick.now, tick.run_id, index, step, retries)
        await tick.create_run(
            clog_id=STEPS, run_id=step_id, input=made, notify_parent=True, on_parent_end="cancel",
            attributes={
                "state": "queued", "mission_id": tick.run_id, "kind": made["kind"], "executor": made["executor"],
                "position": tick.now * 1_000 + index,
            },
        )  # fmt: skip
    kept = {name: value for name, value in row.items() if name != "plan"}
    await tick.write(run={**kept, "steps": steps})
    return Ok()


def new_step(now: int, mission_id: str, index: int, step: Row, retries: int | None) -> Row:
    return {
        "mission_id": mission_id,
        "index": index,
        "kind": step["kind"],
        "params": step.get("params", {}),
        "status": "queued",
        "executor": executor_of(step),
        "reserved_at": None,
        "lease_expires_at": None,
        "renewed_at": None,
        "failure_count": 0,
        "max_retries": step["max_retries"] if step.get("max_retries") is not None else retries,
        "last_error": None,
        "result": None,
        "created_at": now,
        "updated_at": now,
        "attempt": None,
        "dead_letter": None,
    }


async def _step_ended(tick: Tick, row: Row) -> Outcome:
    """Start the next step, or end the mission. A step's run ends when it succeeds; any other end is a failure."""
    assert tick.child is not None
    step_id = tick.child.run_id
    if tick.child.error is not None:
        if row["status"] != "failed":
            await _fail(tick, row, step_id)
        return Ok()
    following = row["steps"][row["steps"].index(step_id) + 1 :]
    if following:
        await tick.signal(following[0], {"do": "start"})
        await _store(tick, {**row, "status": "running"})
        return Ok()
    await _store(tick, {**row, "status": "succeeded", "completed_at": tick.now})
    await publish(tick, "mission:complete", {"mission_id": tick.run_id, "status": "succeeded"}, tick.run_id)
    return Done({"status": "succeeded"})


async def _fail(tick: Tick, row: Row, step_id: str) -> None:
    for other in row["steps"][row["steps"].index(step_id) + 1 :]:
        await tick.signal(other, {"do": "give up"})
    await _store(tick, {**row, "status": "failed", "completed_at": tick.now})
    data = {"mission_id": tick.run_id, "status": "failed", "step_id": step_id}
    await publish(tick, "mission:complete", data, tick.run_id)
    await tick.set_timer("close", after_ms=REDRIVABLE_MS)


async def _continue(tick: Tick, row: Row, step_id: str) -> None:
    for other in row["steps"][row["steps"].index(step_id) + 1 :]:
        await tick.signal(other, {"do": "queue"})
    await tick.cancel_timer("close")
    await _store(tick, {**row, "status": "running", "completed_at": None})


async def _store(tick: Tick, row: dict[str, Any]) -> None:
    await tick.write(run={**row, "updated_at": tick.now})
    await tick.set_attributes(state=row["status"])
