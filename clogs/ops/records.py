"""The names of the Ops-Loop's clogs, and the rows that they share.

A record (a proposal, a mission, a step, an event …) is a run. It is created with its whole row as input, and its first
tick stores that row, so a record can be shown as soon as it exists.
"""

from typing import Any

from ocean import Clog, Done, Outcome, Tick

POLICY, PROPOSALS, MISSIONS, STEPS = "ops-policy", "ops-proposals", "ops-missions", "ops-steps"
ATTEMPTS, EVENTS, REACTIONS, DEAD_LETTERS = "ops-attempts", "ops-events", "ops-reactions", "ops-dead-letters"
HEART = "ops-heart"

Row = dict[str, Any]


def record_clog(clog_id: str, *, external: bool = False) -> Clog:
    """Make a clog whose runs are records: only the Ops-Loop's own routes change them, and `show` reads their rows."""
    clog = Clog(clog_id, external=external, generic=())

    @clog.method
    async def show(tick: Tick, ids: list[str]) -> dict[str, Row]:
        return dict((await tick.read(runs=ids)).runs)

    return clog


async def state_of(tick: Tick) -> tuple[Row, bool]:
    """Return the run's row, and whether it was stored: in the first tick it is the input."""
    rows = await tick.read(run=True)
    return (rows.run, True) if rows.has_run else (dict(tick.input), False)


async def keep(tick: Tick) -> Outcome:
    """Store the row of a record that never changes, and end its run."""
    row, _ = await state_of(tick)
    await tick.write(run=row)
    return Done()


async def publish(tick: Tick, type: str, data: Row, mission_id: str | None = None, *, is_own: bool = False) -> str:
    """Publish an agent event in this commit. With `is_own`, no pattern is matched against it."""
    return await tick.create_run(clog_id=EVENTS, **new_event(type, data, mission_id, None, is_own))


def new_event(
    type: str, data: Any, mission_id: str | None, dedupe_key: str | None, is_own: bool = False
) -> dict[str, Any]:
    """Return the arguments that create an event's run, without a time, so that an equal event is equal input."""
    row = {
        "dedupe_key": dedupe_key,
        "type": type,
        "data": data,
        "mission_id": mission_id,
        "processed_at": None,
        "is_own": is_own,
    }
    named = {"type": type, "mission_id": mission_id, "dedupe_key": dedupe_key}
    attributes = {name: value for name, value in named.items() if value is not None}
    return {"input": row, "attributes": {**attributes, "processed": False}}
