"""The faults that a seed injects around units of work of one instance."""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ocean import StoreBusy, StoreFailed, StoreUnusable
from ocean.state.clock import sleep
from ocean.stores.sqlite.engine.group_commit import QueuedUnit
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.testing.simulation.inline_database import Weather

if TYPE_CHECKING:
    from tests.simulation.instances import Instance

SLOW_READS = 0.2


class InjectedFaults(Weather):
    def __init__(self, instance: "Instance") -> None:
        self._instance = instance
        self._world = instance.world

    async def before_write(self, units: list[QueuedUnit]) -> None:
        world, instance = self._world, self._instance
        if world.over.done():
            raise StoreUnusable("the simulation is over")
        if world.happens("crash_before_commit"):
            await instance.die()
        if world.happens("slow_commit"):
            await sleep(world.clock, world.chance.randint(1, 2 * world.plan.lock_ms))
        if world.happens("busy"):
            raise StoreBusy("busy before the commit")
        if world.happens("error_before_commit"):
            raise StoreFailed("failed before the commit")
        if len(units) > 1 and world.happens("broken_group"):
            broken = world.chance.choice(units)
            broken.unit = _failing_once(broken.unit)

    def after_commit(self) -> None:
        self._world.watcher.after_commit(self._instance)

    async def after_write(self, units: list[QueuedUnit]) -> None:
        world = self._world
        if world.happens("crash_after_commit"):
            await self._instance.die()
        if world.happens("commit_then_busy"):
            raise StoreBusy("busy after the commit")
        if world.happens("commit_then_error"):
            raise StoreFailed("failed after the commit")

    def before_blocking(self) -> None:
        if self._world.over.done():
            raise StoreUnusable("the simulation is over")
        if self._world.happens("busy_renewal"):
            raise StoreBusy("busy when locks were renewed")

    async def before_read(self) -> None:
        world = self._world
        if world.happens("crash"):
            await self._instance.die()
        if world.chance.random() < SLOW_READS:
            await sleep(world.clock, 1)


def _failing_once(unit: Callable[[Transaction], Any]) -> Callable[[Transaction], Any]:
    """Return a unit that fails once, and so breaks its group: then each unit runs alone."""
    has_failed = False

    def fail_once(transaction: Transaction) -> Any:
        nonlocal has_failed
        answer = unit(transaction)
        if not has_failed:
            has_failed = True
            raise sqlite3.OperationalError("broken after its statements")
        return answer

    return fail_once
