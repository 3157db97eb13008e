"""What goes wrong around the units of one instance's database."""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ocean import StoreBusy, StoreFailed, StoreUnusable
from ocean.state.clock import sleep
from ocean.stores.sqlite.engine.group_commit import Item
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.testing.simulation.inline_database import Weather

if TYPE_CHECKING:
    from tests.simulation.instances import Instance

SLOW_READS = 0.2


class Storm(Weather):
    def __init__(self, instance: "Instance") -> None:
        self._instance = instance
        self._world = instance.world

    async def before_write(self, items: list[Item]) -> None:
        world, instance = self._world, self._instance
        if world.over.done():
            raise StoreUnusable("the simulation is over")
        if world.strikes("crash_before_commit"):
            await instance.die()
        if world.strikes("slow_commit"):
            await sleep(world.clock, world.chance.randint(1, 2 * world.plan.lock_ms))
        if world.strikes("busy"):
            raise StoreBusy("busy before the commit")
        if world.strikes("error_before_commit"):
            raise StoreFailed("failed before the commit")
        if len(items) > 1 and world.strikes("broken_group"):
            broken = world.chance.choice(items)
            broken.unit = _failing_once(broken.unit)

    def after_commit(self) -> None:
        self._world.watcher.after_commit(self._instance)

    async def after_write(self, items: list[Item]) -> None:
        world = self._world
        if world.strikes("crash_after_commit"):
            await self._instance.die()
        if world.strikes("commit_then_busy"):
            raise StoreBusy("busy after the commit")
        if world.strikes("commit_then_error"):
            raise StoreFailed("failed after the commit")

    def before_blocking(self) -> None:
        if self._world.over.done():
            raise StoreUnusable("the simulation is over")
        if self._world.strikes("busy_renewal"):
            raise StoreBusy("busy when locks were renewed")

    async def before_read(self) -> None:
        world = self._world
        if world.strikes("crash"):
            await self._instance.die()
        if world.chance.random() < SLOW_READS:
            await sleep(world.clock, 1)


def _failing_once(unit: Callable[[Transaction], Any]) -> Callable[[Transaction], Any]:
    """A unit that breaks its group: then each is tried alone."""
    has_failed = False

    def fail_once(transaction: Transaction) -> Any:
        nonlocal has_failed
        answer = unit(transaction)
        if not has_failed:
            has_failed = True
            raise sqlite3.OperationalError("broken after its statements")
        return answer

    return fail_once
