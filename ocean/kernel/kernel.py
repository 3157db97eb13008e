"""The kernel: the verbs of one instance, and what they share."""

from collections.abc import Collection, Iterable

import anyio

from ocean.access.api_keys import ApiKeyVerbs
from ocean.clog.clog import Clog, Registry
from ocean.kernel.arguments import checked_count, optional_id
from ocean.kernel.coordinator import Coordinator
from ocean.kernel.instances import Instances, ProcessTable
from ocean.kernel.invoke import IN_THREADS
from ocean.kernel.locks import LockKeeper
from ocean.kernel.metrics import Observations
from ocean.kernel.probation import Probation
from ocean.kernel.runtime import Runtime
from ocean.kernel.shutdown import Shutdown
from ocean.kernel.store import Store
from ocean.kernel.verbs.admin import AdminVerbs
from ocean.kernel.verbs.advance import AdvanceVerbs
from ocean.kernel.verbs.bulk import BulkVerbs
from ocean.kernel.verbs.calls import CallVerbs
from ocean.kernel.verbs.keys import KeyVerbs
from ocean.kernel.verbs.leases import LeaseVerbs
from ocean.kernel.verbs.queries import QueryVerbs
from ocean.kernel.verbs.runs import RunVerbs
from ocean.kernel.verbs.webhooks import WebhookVerbs
from ocean.state.clock import Clock
from ocean.state.eligibility import FAIR_EVERY
from ocean.state.ids import IdSource, even_roll
from ocean.state.ids import instance_id as new_instance_id
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials
from ocean.tools.outside import Reach, RealReach

DEFAULT_LOCK_MS = 30_000


class Kernel(
    RunVerbs,
    AdvanceVerbs,
    QueryVerbs,
    CallVerbs,
    WebhookVerbs,
    LeaseVerbs,
    BulkVerbs,
    KeyVerbs,
    AdminVerbs,
    ApiKeyVerbs,
):
    """One instance. Any number of instances, in any number of processes, may share a database."""

    def __init__(
        self,
        store: Store,
        clogs: Iterable[Clog],
        clock: Clock,
        *,
        lock_ms: int = DEFAULT_LOCK_MS,
        instance_id: str | None = None,
        private_hosts: Collection[str] = (),
        reach: Reach | None = None,
        tools: Iterable[Tool | ToolBox] = (),
        deny_tools: Collection[str] = (),
        credentials: Credentials | None = None,
        processes: ProcessTable | None = None,
    ) -> None:
        checked_count(lock_ms, "lock_ms", least=3)
        optional_id(instance_id, "instance_id")
        self._store = store
        self._clock = clock
        self._ids = IdSource()
        self._registry = Registry(clogs, tools, deny_tools, credentials)
        self.instance_id = instance_id or new_instance_id()
        lock_times = [lock_ms, *(clog.lock_ms for clog in self._registry if clog.lock_ms)]
        keeper = LockKeeper(store, clock, min(lock_times))
        self.instances = Instances(store, clock, processes, self.instance_id, max(lock_times))
        self.observed = Observations(clock, store.batch_sizes, [clog.clog_id for clog in self._registry])
        reach = reach or RealReach(private_hosts)
        self.shutdown = Shutdown(clock)
        self._runtime = Runtime(
            store,
            self._registry,
            clock,
            keeper,
            self.instances,
            self.instance_id,
            lock_ms,
            reach,
            self.observed,
            Probation(store),
            self.shutdown,
        )
        # Derived from the id, so that processes that make few claims do not all begin with the urgent slots.
        self.coordinator = Coordinator(self._runtime, int(even_roll(self.instance_id) * FAIR_EVERY))

    @property
    def clock(self) -> Clock:
        """The clock of the store."""
        return self._clock

    async def stop(self, grace_ms: int = 0) -> None:
        """Claim nothing more; wait up to `grace_ms` for running handlers, then cancel them and give their runs back.

        It covers every poke of this instance, and no run spends an attempt. A handler that ignores its cancellation, as
        a plain function in its thread does, goes on, but it can no longer change anything. Other verbs still work.
        """
        await self.shutdown.stop(checked_count(grace_ms, "grace_ms"))

    @property
    def still_executing(self) -> int:
        """How many handlers go on although they were cancelled. The process cannot end by itself before they do."""
        return self.shutdown.left + len(IN_THREADS)

    async def close(self) -> None:
        """Stop, renew no more locks, and close the store."""
        with anyio.CancelScope(shield=True):
            await self.stop()
        self._runtime.keeper.close()
        if not self.at_work:
            # With handlers at work the record stays: their locks are released once this process has ended.
            await self.instances.stop()
        await self._store.close()
