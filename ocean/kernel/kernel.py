"""The kernel: the verbs of one instance, and what they share."""

from collections.abc import Collection, Iterable
from typing import Any

from ocean.access.api_keys import ApiKeyVerbs
from ocean.clog.clog import Clog, Registry
from ocean.kernel.arguments import checked_count, optional_id
from ocean.kernel.locks import LockKeeper
from ocean.kernel.metrics import Observations
from ocean.kernel.store import Store
from ocean.kernel.tick_run import Runtime, commit_or_time
from ocean.kernel.verbs.admin import AdminVerbs
from ocean.kernel.verbs.advance import Poking
from ocean.kernel.verbs.bulk import BulkVerbs
from ocean.kernel.verbs.calls import CallVerbs
from ocean.kernel.verbs.keys import KeyVerbs
from ocean.kernel.verbs.leases import LeaseVerbs
from ocean.kernel.verbs.queries import QueryVerbs
from ocean.kernel.verbs.runs import RunVerbs
from ocean.kernel.verbs.webhooks import WebhookVerbs
from ocean.state.claim_order import FAIR_EVERY
from ocean.state.clock import Clock
from ocean.state.errors import ResultTimeout, RunFailed
from ocean.state.ids import IdSource, even_roll
from ocean.state.ids import instance_id as new_instance_id
from ocean.state.records import AdvanceResult, RunInfo, RunStatus
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials
from ocean.tools.outside import Reach, RealReach

DEFAULT_LOCK_MS = 30_000
POKE_MS = 1_000


class Kernel(
    RunVerbs,
    Poking,
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
    ) -> None:
        checked_count(lock_ms, "lock_ms", least=3)
        optional_id(instance_id, "instance_id")
        self._store = store
        self._clock = clock
        self._ids = IdSource()
        self._registry = Registry(clogs, tools, deny_tools, credentials)
        self.instance_id = instance_id or new_instance_id()
        shortest = min([lock_ms, *(clog.lock_ms for clog in self._registry if clog.lock_ms)])
        keeper = LockKeeper(store, clock, shortest)
        self.observed = Observations(clock, store.batch_sizes, [clog.clog_id for clog in self._registry])
        reach = reach or RealReach(private_hosts)
        self._runtime = Runtime(store, self._registry, clock, keeper, self.instance_id, lock_ms, reach, self.observed)
        # Derived from the id, so that processes that make few claims do not all begin with the urgent slots.
        self._slot = int(even_roll(self.instance_id) * FAIR_EVERY)

    @property
    def clock(self) -> Clock:
        """The clock of the store."""
        return self._clock

    async def close(self) -> None:
        """Stop renewing locks and close the store."""
        self._runtime.keeper.close()
        await self._store.close()

    async def result(self, run_id: str, *, timeout_ms: int = 30_000) -> Any:
        """The run's output once it is done. Waits, and pokes meanwhile: the run, and what else is due here."""
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            seen = self._store.commits_seen()
            run = await self._require(run_id)
            if run.status is RunStatus.DONE:
                return run.output
            if run.status is RunStatus.FAILED:
                error = run.error or {}
                raise RunFailed(f"run {run_id} failed: {error.get('message')}", error, run_id=run_id)
            if until <= self._clock.now():
                raise ResultTimeout(f"run {run_id} is {run.status} after {timeout_ms} ms; it goes on", run_id=run_id)
            await self._moved(run, seen, until)

    async def settle(self, run_id: str, *, timeout_ms: int = 1_000) -> RunInfo:
        """Poke until the run `is_settled`: idle, waiting or ended, with nothing due. Else as it is after that time.

        A handler that has begun goes on to its own limit, and this waits for it.
        """
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            seen = self._store.commits_seen()
            run = await self._require(run_id)
            if run.is_settled(self._clock.now()) or until <= self._clock.now():
                return run
            await self._moved(run, seen, until)

    async def _moved(self, run: RunInfo, seen: int, until: int) -> None:
        """Poke; or wait for a commit or for the time, if the run is at work, or nothing has come of it."""
        now, due = self._clock.now(), run.due_at
        if run.status is not RunStatus.ACTIVE or due is None or due <= now:
            poked = await self._poked(run, until - now)
            if poked.outcomes:
                return
            # Also when only another run is due then: this one may wait for it, as a parent or behind a key.
            now = self._clock.now()
            due = max(min(time for time in (due, poked.next_wake_at, until) if time is not None), now + 50)
        await commit_or_time(self._store, self._clock, seen, max(min(until, due) - now, 0))

    async def _poked(self, run: RunInfo, budget_ms: int) -> AdvanceResult:
        """Move the run, or else whatever it may be waiting for."""
        own = await self.advance(run_id=run.run_id, budget_ms=budget_ms, source="wait")
        return own if own.outcomes else await self.advance(budget_ms=min(budget_ms, POKE_MS), source="wait")
