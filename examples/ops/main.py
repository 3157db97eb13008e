"""Turn an event into a proposal, approve it, and complete the mission although a worker dies."""

import tempfile
from pathlib import Path
from typing import Any

import anyio

from clogs.ops import Executor, Ops, OpsSettings, Task, Worker, clogs
from ocean import Caller, Ocean

DEPLOY = {
    "id": "deploy",
    "event_type": "deploy:*",
    "tags": ["production"],
    "template": {
        "title": "Deploy {{event.data.service}}",
        "risk_level": "medium",
        "steps": [
            {"kind": "check", "executor": "shipper", "params": {"service": "{{event.data.service}}"}},
            {"kind": "ship", "executor": "shipper", "params": {"service": "{{event.data.service}}"}, "max_retries": 2},
        ],
    },
}
shipped: list[str] = []


async def ship(ocean: Ocean, task: Task) -> Any:
    """Simulate an external system that recognises a repeated request by its key."""
    if task.idempotency_key not in shipped and task.step["kind"] == "ship":
        shipped.append(task.idempotency_key)
    return {"service": task.params["service"]}


EXECUTORS: dict[str, Executor] = {"shipper": ship}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = OpsSettings()
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=clogs(settings)) as ocean:
            await demonstrate(ocean, Ops(ocean, settings))


async def demonstrate(ocean: Ocean, ops: Ops) -> None:
    await ops.put_policy([{"key": "reaction_matrix", "value": {"patterns": [DEPLOY]}}])
    data = {"service": "api", "tags": ["production"]}
    await ops.insert_events([{"type": "deploy:requested", "data": data, "dedupe_key": "push-17"}])
    print("heartbeat:", (await ops.heartbeat())["reactionResult"])

    (proposal,), _ = await ops.rows("ops_mission_proposals", [("status", "eq.pending")])
    print("proposed:", proposal["template"]["title"])
    approved = await ops.approve(proposal["id"], "ship it", caller=Caller("kim"))
    print("kim:", approved["status"])

    worker = Worker(ops, EXECUTORS, worker_id="w-2")
    await worker.work_once()
    (step,) = await ops.ops_claim_next_step(1, "shipper", "w-1")
    await ship(ocean, Task(step, step["id"]))
    print("w-1 ships, and dies before it reports")
    (run,), _ = await ops.rows("ops_action_runs", [("status", "eq.started")])
    await ocean.cancel_run(run["id"])  # end the lease now instead of waiting a minute for its expiry
    again = await worker.work_once()
    assert again is not None
    print("w-2:", again["kind"], again["status"], "after", again["failure_count"], "failure")

    (mission,), _ = await ops.rows("ops_missions")
    print("mission:", mission["status"])
    events, _ = await ops.rows("ops_agent_events", [("order", "created_at.asc"), ("select", "type")])
    print("events:", sorted({event["type"] for event in events}))
    print("shipped:", len(shipped))


if __name__ == "__main__":
    anyio.run(main)
