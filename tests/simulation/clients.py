"""Clients: each draws a verb and sends it to a random instance, perhaps twice, and perhaps gets no response."""

from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ocean import BulkStopped, Ocean, OceanError, StoreBusy, StoreFailed
from ocean.state.clock import sleep
from ocean.ticker import Ticker
from tests.simulation import verbs
from tests.simulation.history import SentRequest
from tests.simulation.instances import Instance, Unreachable

if TYPE_CHECKING:
    from tests.simulation.world import World

Work = Callable[[Ocean], Coroutine[Any, Any, Any]]
TRIES = 3
MOST_AWAITS = 25
MOST_POKES = 3
MOST_RETRIES = 2


@dataclass
class Request:
    sent: SentRequest
    work: Work
    is_repeatable: bool


async def client(world: "World", number: int) -> None:
    for _ in range(world.plan.requests):
        await sleep(world.clock, world.chance.choice((0, 0, 3, 30, 200, 900)))
        weights = world.plan.verbs
        verb = world.chance.choices(list(weights), list(weights.values()))[0]
        drawn = verbs.draw(world, verb)
        if drawn is None:
            continue
        await ask(world, f"c{number}", Request(*drawn))


async def ask(world: "World", who: str, request: Request) -> None:
    world.history.requests.append(request.sent)
    world.record(f"{who} asks {request.sent.verb} {request.sent.run_id or ''} {request.sent.token or ''}")
    if request.is_repeatable and world.happens("duplicate"):
        world.start(send(world, request))
    for _ in range(TRIES):
        if await send(world, request) or not request.is_repeatable:
            break


async def send(world: "World", request: Request) -> bool:
    """Send a request. Returns whether there was a response, of any kind."""
    sent, chance = request.sent, world.chance
    if world.happens("late_request"):
        await sleep(world.clock, chance.randint(1, 3_000))
    cancel_at = chance.randint(1, MOST_AWAITS) if world.happens("cancel_request") else None
    try:
        answer = await world.instance().ask(request.work, cancel_at=cancel_at)
    except (Unreachable, StoreBusy, StoreFailed, BulkStopped) as error:
        sent.is_unknown = True
        world.record(f"no answer to {sent.verb} {sent.token or ''}: {error}")
        await sleep(world.clock, chance.choice((0, 20, 300)))
        return False
    except OceanError as error:
        sent.refusals.append(error.code)
        world.count_event(f"refused {error.code}")
        world.record(f"refused {sent.verb} {sent.token or ''}: {error.code}")
        return True
    except Exception as error:
        world.fail("unexpected error", f"{sent.verb} raised {error!r}")
        return True
    if world.happens("lost_answer"):
        sent.is_unknown = True
        return False
    sent.results.append(answer)
    world.count_event(f"verb {sent.verb}")
    world.record(f"answer to {sent.verb} {sent.token or ''}: {verbs.shown(answer)}")
    if sent.verb.startswith("create") or sent.verb == "retry":
        world.history.knows(answer.run_id)
    return True


async def retrier_of_ends(world: "World") -> None:
    """Retry last ticks that have used up their attempts."""
    tried: Counter[str] = Counter()
    while world.plan.retries_ends:
        await sleep(world.clock, 700)
        for run_id in [run.run_id for run in world.watcher.rows.values() if run.end_incomplete]:
            tried[run_id] += 1
            if tried[run_id] <= MOST_RETRIES:
                await ask(world, "retrier", Request(*verbs.retry_end(world, run_id)))


async def poker(world: "World", instance: Instance) -> None:
    """Poke an instance now and then."""
    if world.plan.has_ticker and instance is world.instances[0]:
        await _tick_for_ever(world, instance)
    at_work = 0

    async def poke() -> None:
        nonlocal at_work
        at_work += 1
        try:
            await _poke(world, instance)
        finally:
            at_work -= 1

    while True:
        await sleep(world.clock, world.chance.randint(1, 2 * world.plan.pokes_ms))
        if at_work < MOST_POKES and not (world.is_calm and world.plan.has_ticker):
            world.start(poke())


async def _tick_for_ever(world: "World", instance: Instance) -> None:
    while True:
        with suppress(Unreachable):
            await instance.ask(lambda ocean: Ticker(ocean, budget_ms=1_000, look_ms=1_000).run())
        await sleep(world.clock, 100)


async def _poke(world: "World", instance: Instance) -> None:
    chance = world.chance
    options: dict[str, Any] = {"budget_ms": chance.choice((0, 100, 1_000))}
    if world.happens("hasty_poke"):
        options["hard_ms"] = chance.choice((10, 30, 400))
    if not world.is_calm and chance.random() < 0.3:
        options["max_ticks"] = chance.randint(1, 3)
    options["concurrency"] = chance.choice((1, 2, 8))
    cancel_at = chance.randint(1, MOST_AWAITS) if world.happens("cancel_poke") else None
    try:
        advanced = await instance.ask(lambda ocean: ocean.advance(**options), cancel_at=cancel_at)
    except (Unreachable, StoreBusy, StoreFailed):
        return
    except Exception as error:
        world.fail("unexpected error", f"advance raised {error!r}")
        return
    for result in advanced.outcomes:
        world.count_event(f"outcome {result.outcome}")
        world.record(f"{instance.name} {result.outcome} {result.run_id} {result.tick} → {result.status}")


async def disturb_instance(world: "World", instance: Instance) -> None:
    """Crash, pause or skew an instance now and then."""
    while True:
        await sleep(world.clock, world.chance.randint(50, 1_500))
        if instance.is_up and world.happens("crash"):
            instance.crash()
        if instance.is_up and world.happens("pause"):
            instance.process.pause(world.chance.randint(1, 4 * world.plan.lock_ms))
        if instance.is_up and world.is_on_sqlite and world.happens("jump"):
            instance.clock.ahead_ms += world.chance.randint(-4_000, 8_000)
