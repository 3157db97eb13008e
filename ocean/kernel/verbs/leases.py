"""The verbs for those outside who do an external clog's ticks."""

from collections.abc import Collection, Iterable
from typing import Any

from ocean.kernel.arguments import UNSET
from ocean.kernel.leasing import Lease, Leasing, WorkDone
from ocean.state.access import Standing
from ocean.state.claim_order import FAIR_EVERY
from ocean.state.outcomes import Outcome
from ocean.state.records import RunStatus

DEFAULT_LEASE_MS = 30_000


class Lending:
    _leasing: Leasing
    _slot: int

    async def standing_of_lease(self, lease_id: str) -> Standing | None:
        """The `standing` of a leased run."""
        return await self._leasing.standing(lease_id)

    async def claim_work(
        self,
        clog_id: str,
        worker_id: str,
        lease_ms: int = DEFAULT_LEASE_MS,
        queues: Collection[str] | None = None,
        limit: int = 1,
        wait_ms: int = 0,
    ) -> list[Lease]:
        """Lease due runs of an external clog to a worker, from all its queues or some; wait up to `wait_ms` for one."""
        leases = await self._leasing.claim(clog_id, worker_id, lease_ms, queues, limit, wait_ms, self._slot)
        self._slot = (self._slot + len(leases)) % FAIR_EVERY
        return leases

    async def renew_work(
        self,
        lease_id: str,
        *,
        lease_ms: int | None = None,
        events: Iterable[tuple[str, Any]] = (),
        request_key: str | None = None,
    ) -> int:
        """Keep a lease for its own time or for `lease_ms`; answers when it lapses now. `events` appear at once."""
        return await self._leasing.renew(lease_id, lease_ms, events, request_key)

    async def release_work(self, lease_id: str, *, request_key: str | None = None) -> RunStatus:
        """Give unfinished work back, for a worker that must stop: two are free, each further one is an attempt."""
        return await self._leasing.release(lease_id, request_key)

    async def complete_work(
        self,
        lease_id: str,
        outcome: Outcome,
        events: Iterable[tuple[str, Any]] = (),
        row: Any = UNSET,
        row_version: int | None = None,
    ) -> WorkDone:
        """Commit a leased tick: outcome, events, perhaps the run's row. Late it is refused; again, it is the same."""
        return await self._leasing.complete(lease_id, outcome, events, row, row_version)
