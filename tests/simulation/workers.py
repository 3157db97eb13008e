"""Workers that lease runs of the clog `errand`."""

from typing import TYPE_CHECKING, Any

from ocean import Done, Failed, LeaseLost, Ocean, OceanError, Ok, Outcome, Retry, StoreBusy, StoreFailed, Wait
from ocean.kernel.verbs.leases import Lease
from ocean.state.clock import sleep
from tests.simulation.history import SentRequest
from tests.simulation.instances import Instance, Unreachable

if TYPE_CHECKING:
    from tests.simulation.world import World

LEASE_MS = 800
NO_ANSWER = (Unreachable, StoreBusy, StoreFailed)


async def worker(world: "World", instance: Instance) -> None:
    """Lease and work. Each request goes to a random instance."""
    name, queues = f"w{instance.name}", world.chance.choice((None, ["q", "default"]))
    while True:
        await sleep(world.clock, world.chance.randint(10, 600))
        wait_ms = world.chance.choice((0, 0, 300))
        try:
            leases = await world.instance().ask(
                lambda ocean: ocean.claim_work("errand", name, LEASE_MS, queues, 2, wait_ms)  # noqa: B023
            )
        except NO_ANSWER:
            continue
        except OceanError as error:
            world.count_event(f"refused {error.code}")
            continue
        for lease in leases:
            await _work(world, lease)


async def _work(world: "World", lease: Lease) -> None:
    chance = world.chance
    world.count_event("verb claim_work")
    world.record(f"{lease.worker_id} works on {lease.run_id} {lease.tick}.{lease.call}")
    await sleep(world.clock, chance.choice((0, 50, 600)))
    if not world.is_calm:
        if chance.random() < 0.3:
            await _ask(world, "renew_work", lambda o: o.renew_work(lease.lease_id, events=[("part", {"part": 0})]), 1)
        if chance.random() < 0.3:
            await sleep(world.clock, 2 * LEASE_MS)
        if chance.random() < 0.15:
            await _ask(world, "release_work", lambda o: o.release_work(lease.lease_id), 1)
        if chance.random() < 0.1:
            world.count_event("fault dead worker")
            return
    row = dict(lease.row) if lease.row else {"ticks": 0, "calls": 0}
    row["ticks"] += 1
    outcomes: tuple[Outcome, ...] = (Done(1), Done(1), Ok(), Failed("no"), Retry("again"), Wait(for_ms=200))
    outcome = Done(1) if row["ticks"] > 5 else chance.choice(outcomes)
    events: list[tuple[str, Any]] = [("did", {"deeds": [], "ticks": row["ticks"]})]
    writes: dict[str, Any] = {} if isinstance(outcome, Retry) else {"row": row, "events": events}

    async def complete(ocean: Ocean) -> Any:
        return await ocean.complete_work(lease.lease_id, outcome, **writes)

    tries = chance.choice((1, 1, 2)) if not world.is_calm else 3
    await _ask(world, "complete_work", complete, tries)


async def _ask(world: "World", verb: str, work: Any, tries: int) -> None:
    """Send a request, perhaps several times. A repeated `complete_work` must have the result of the first."""
    sent = SentRequest(verb, "lease" if verb == "complete_work" else None)
    world.history.requests.append(sent)
    for _ in range(tries):
        try:
            sent.results.append(await world.instance().ask(work))
            world.count_event(f"verb {verb}")
        except NO_ANSWER:
            sent.is_unknown = True
        except LeaseLost as error:
            sent.refusals.append(error.code)
            world.count_event(f"refused {error.code}")
        except OceanError as error:
            sent.refusals.append(error.code)
            world.count_event(f"refused {error.code}")
