"""What an instance needs to run ticks, and how it waits for commits of other processes."""

from collections.abc import Collection
from dataclasses import dataclass

import anyio

from ocean.clog.clog import Registry
from ocean.kernel.instances import Instances
from ocean.kernel.locks import LockKeeper
from ocean.kernel.metrics import Observations
from ocean.kernel.probation import Probation
from ocean.kernel.shutdown import Shutdown
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimableClog
from ocean.state.clock import Clock
from ocean.tools.outside import Reach


@dataclass(frozen=True, slots=True)
class Runtime:
    """What an instance needs to run ticks."""

    store: Store
    registry: Registry
    clock: Clock
    keeper: LockKeeper
    instances: Instances
    instance_id: str
    lock_ms: int
    reach: Reach
    observed: Observations
    probation: Probation
    shutdown: Shutdown

    def claimable(self, clog_ids: Collection[str] | None) -> dict[str, ClaimableClog]:
        return {
            clog.clog_id: ClaimableClog(clog.clog_id, clog.lock_ms or self.lock_ms, clog.version, clog.takes_all_inputs)
            for clog in self.registry
            if clog.handler is not None and (clog_ids is None or clog.clog_id in clog_ids)
        }

    async def commit_or_time(self, seen: int, ms: int, look_ms: int = 100) -> None:
        """Wait for the next commit of any process, at most `ms`. Meanwhile release instances that are gone."""

        async def wait(at_most: int) -> None:
            await commit_or_time(self.store, self.clock, seen, at_most, look_ms)

        await self.instances.while_waiting(wait, seen, ms)


async def commit_or_time(store: Store, clock: Clock, seen: int, ms: int, look_ms: int = 100) -> None:
    """Wait for the next commit of any process, at most `ms`."""
    with anyio.CancelScope() as scope:
        cancel = clock.call_later(ms, scope.cancel)
        try:
            await store.next_commit(seen, look_ms)
        finally:
            cancel()
