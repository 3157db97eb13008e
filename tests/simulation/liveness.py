"""Liveness: after the faults have stopped, with regular pokes, every run that can end must end."""

from typing import TYPE_CHECKING, Any

from ocean import OceanError
from ocean.state.clock import sleep
from tests.simulation.instances import Unreachable

if TYPE_CHECKING:
    from tests.simulation.world import World

LONGEST_MS = 600_000
POKE_MS = 500
ROUNDS = 200
"""The most pokes in a row after which no further run is at rest. Many runs behind few keys need more in all."""


async def heal(world: "World") -> None:
    world.is_calm = True
    world.record("from here on there are no faults")
    for instance in world.instances:
        instance.clock.ahead_ms = 0
    # Instances that are down start again, and those that are paused or blocked resume.
    await sleep(world.clock, 5_000)
    for clog_id in ("actor", "gatherer", "errand"):
        await _ask(world, lambda ocean: ocean.resume_clog(clog_id))  # noqa: B023
    for key in ("k1", "k2", "k3"):
        await _ask(world, lambda ocean: ocean.set_limit(key, 2))  # noqa: B023
    most_at_rest, rounds_left = 0, ROUNDS
    while rounds_left:
        for row in world.db.execute("SELECT run_id FROM runs WHERE paused = 1 ORDER BY run_id").fetchall():
            await _ask(world, lambda ocean: ocean.resume_run(row["run_id"]))  # noqa: B023
        await _free_kept_keys(world)
        if not _unfinished(world):
            return
        at_rest = _at_rest(world)
        rounds_left = ROUNDS if at_rest > most_at_rest else rounds_left - 1
        most_at_rest = max(at_rest, most_at_rest)
        await sleep(world.clock, POKE_MS)
    stuck = [await _ask(world, lambda ocean: ocean.explain(run_id)) for run_id in _unfinished(world)]  # noqa: B023
    world.fail("liveness", f"{ROUNDS} pokes have brought none of these to rest: {stuck}")


def _at_rest(world: "World") -> int:
    row = world.db.execute("SELECT count(*) FROM runs WHERE status IN ('idle', 'done', 'failed')").fetchone()
    return int(row[0])


def _unfinished(world: "World") -> list[str]:
    """Return the runs that have something to do, or a deadline."""
    sql = (
        "SELECT run_id FROM runs WHERE status IN ('pending', 'active', 'waiting')"
        " OR (deadline_at IS NOT NULL AND ended_at IS NULL) ORDER BY run_id"
    )
    return [row["run_id"] for row in world.db.execute(sql).fetchall()]


async def _free_kept_keys(world: "World") -> None:
    """Cancel idle runs that hold a key for their whole life: other runs would wait for it without end."""
    sql = (
        "SELECT DISTINCT r.run_id FROM runs r JOIN ocean_run_keys k ON k.run_id = r.run_id"
        " WHERE k.hold = 'run' AND k.is_held = 1 AND r.status = 'idle' ORDER BY r.run_id"
    )
    for row in world.db.execute(sql).fetchall():
        await _ask(world, lambda ocean: ocean.cancel_run(row["run_id"]))  # noqa: B023


async def _ask(world: "World", work: Any) -> Any:
    try:
        return await world.instances[0].ask(work)
    except Unreachable as error:
        world.fail("liveness", f"an instance is away although there are no faults: {error}")
    except OceanError as error:
        return error
