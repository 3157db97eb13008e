"""The part of the stored databases with flows in mid-flight, and a schedule."""

from typing import Any

from clogs.schedule import schedule
from ocean import Clog, Flow
from ocean.testing import World
from tests.upgrades.story import FOR_RETRIES, effects, stop_here


def flow_clogs() -> list[Clog]:
    """Return the clogs of flows, and the clog of schedules."""
    trip = Clog("trip")

    def act(run_id: str, name: str) -> Any:
        def effect(key: str) -> str:
            effects[f"{run_id} {name}"] += 1
            return name

        return effect

    def cancel_booking(run_id: str) -> Any:
        def effect(key: str, result: Any) -> None:
            effects[f"{run_id} undo {result}"] += 1

        return effect

    @trip.flow
    async def travel(flow: Flow, input: Any) -> Any:
        booked = await flow.step("book", act(flow.run_id, "book"), undo=cancel_booking(flow.run_id))
        drawn = await flow.random()
        if input == "sleep":
            await flow.sleep(200_000)
        if input == "signal":
            heard = await flow.wait_for_signal("go", timeout_ms=2_000_000)
            booked = [booked, heard.body]
        if input == "child":
            booked = [booked, await flow.child("desk", "from a flow", attributes={"plan": "nap"})]
        if input == "die":
            await flow.step("die", dying(flow.run_id))
        if input == "stumble":
            await flow.step("stumble", stumbling(flow.run_id), retry=FOR_RETRIES)
        paid = await flow.step("pay", act(flow.run_id, "pay"))
        return [booked, paid, 0 <= drawn < 1]

    def dying(run_id: str) -> Any:
        async def effect(key: str) -> str:
            if not is_again:
                await stop_here(run_id)
            effects[f"{run_id} die"] += 1
            return "alive"

        return effect

    def stumbling(run_id: str) -> Any:
        def effect(key: str) -> str:
            effects[f"{run_id} stumble"] += 1
            if not is_again:
                raise RuntimeError("no connection")
            return "connected"

        return effect

    return [trip, schedule]


is_again = False
"""Whether the runs are driven to their end: steps that fail or die then succeed."""


async def begin_flows(w: World) -> dict[str, Any]:
    """Stop flows at every operation that they can wait at."""
    for name in ("sleep", "signal", "child", "die", "stumble"):
        await w.ocean.create_run(session_id="s", clog_id="trip", run_id=f"flow-{name}", input=name)
    await w.ocean.create_run(session_id="s", clog_id="trip", run_id="flow-cancelled", input="sleep")
    spec = {"name": "half-hourly", "cron": "*/30 * * * *", "target": {"clog_id": "desk"}}
    made = await w.ocean.call_clog(clog_id="schedule", session_id="s", method="add", payload=spec)
    return {"schedule": made["run_id"]}


async def act_flows(w: World, notes: dict[str, Any]) -> dict[str, Any]:
    """Give a waiting flow its signal, and cancel another."""
    global is_again
    is_again = True
    await w.ocean.signal("flow-signal", {"type": "go", "way": "north"})
    await w.ocean.cancel_run("flow-cancelled")
    return {}


async def finish_flows(w: World, notes: dict[str, Any]) -> dict[str, Any]:
    """Return how often the schedule has fired."""
    shown = await w.ocean.call_clog(run_id=notes["schedule"], method="show")
    made = await w.ocean.list_runs(clog_id="desk", attributes={"schedule": "half-hourly"}, order="oldest")
    return {"fired": shown["fired"], "made": [[str(run.status), run.attributes["intended_at"]] for run in made.runs]}


FLOWS = ("flow-sleep", "flow-signal", "flow-child", "flow-die", "flow-stumble", "flow-cancelled")
