"""The clogs of the simulation: `actor` does everything, `gatherer` takes all its inputs and has an `on_end`, `errand`
is for workers."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from ocean import Clog, RetryPolicy, Tick
from tests.simulation.actions import HandlerCall, one_more, row_from

if TYPE_CHECKING:
    from tests.simulation.instances import Instance


END_BACKOFF_MS = 100


def clogs_of(instance: "Instance") -> list[Clog]:
    """Return the clogs of an instance. With more than two instances, the last one does not have the second clog."""
    clogs = [_actor(instance), _gatherer(instance), Clog("errand", external=True)]
    clogs += instance.world.contest.clogs(instance)
    if instance is instance.world.instances[-1] and len(instance.world.instances) > 2:
        del clogs[1]
    return clogs


def _actor(instance: "Instance") -> Clog:
    clog = Clog("actor", tick_ms=instance.world.plan.tick_ms)
    clog.on_advance(_handler(instance))
    _add_methods(clog)
    return clog


def _gatherer(instance: "Instance") -> Clog:
    plan = instance.world.plan
    end_retry = RetryPolicy(max_attempts=plan.end_attempts, backoff_ms=END_BACKOFF_MS)
    clog = Clog("gatherer", inputs="all", tick_ms=plan.tick_ms, end_retry=end_retry, cancel_grace_ms=plan.grace_ms)
    clog.on_advance(_handler(instance))
    clog.on_end(_handler(instance))
    _add_methods(clog)
    return clog


def _handler(instance: "Instance") -> Callable[[Tick], Any]:
    """Return the handler: in some seeds a plain function, which runs in a thread."""

    async def act(tick: Tick) -> Any:
        return await HandlerCall(instance, tick).run()

    def act_in_a_thread(tick: Tick) -> Any:
        return HandlerCall(instance, tick).run_in_a_thread()

    return act_in_a_thread if instance.world.has_threads else act


def _add_methods(clog: Clog) -> None:
    @clog.method
    async def note(tick: Tick, payload: Any) -> Any:
        """Write the row of a run and wake it, in one commit."""
        row = row_from((await tick.read(run=True)).run)
        row["calls"] += 1
        await tick.write(run=row)
        await tick.emit("noted", {"calls": row["calls"]})
        await tick.signal(tick.run_id, {"t": payload["t"]})
        return row["calls"]

    @clog.method
    async def add(tick: Tick, payload: Any) -> Any:
        await tick.read(session=True)
        await tick.write(session=one_more)
        await tick.emit("added", {"t": payload["t"]})
        return payload["t"]

    @clog.method
    async def remind(tick: Tick, payload: Any) -> Any:
        """Set or cancel a timer of a run that may be asleep."""
        chance = Random(payload["t"])
        if chance.random() < 0.3:
            await tick.cancel_timer("x")
        else:
            await tick.set_timer("x", after_ms=chance.randint(0, 2_000), input={"t": "!"})
        return payload["t"]

    @clog.method
    async def nested(tick: Tick, payload: Any) -> Any:
        await tick.emit("nested", {"t": payload["t"]})
        return payload["t"]

    @clog.method
    def nested_in_a_thread(tick: Tick, payload: Any) -> Any:
        tick.block(tick.emit("nested", {"t": payload["t"]}))
        return payload["t"]
