"""The store's verbs about leases."""

from collections.abc import Sequence

from ocean.kernel.store.claims import LeaseAsk, LeaseCompletion, LeaseDone, LeasedRun
from ocean.kernel.store.runs import Behind, Request
from ocean.state.records import RunStatus
from ocean.stores.shared import claim_plan
from ocean.stores.sqlite import claiming, leasing, requests
from ocean.stores.sqlite.engine.executor import Units
from ocean.stores.sqlite.engine.unit_of_work import Unit


class LeaseStore(Units):
    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        for _ in range(claim_plan.MOST_ROUNDS):
            if not await self._read(lambda u: claiming.has_work(u, leasing.claim_ask(u, ask))):
                return []
            leased = await self._write(lambda u: leasing.lease_work(u, ask))
            if leased:
                return leased
        return []

    async def renew_lease(
        self, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]], request: Request | None
    ) -> int:
        def act(u: Unit) -> int:
            return requests.once(u, request, int, lambda: leasing.renew_lease(u, lease_hash, lease_ms, events))

        return await self._write(act)

    async def release_lease(self, lease_hash: str, request: Request | None) -> RunStatus:
        def act(u: Unit) -> RunStatus:
            return requests.once(u, request, RunStatus, lambda: leasing.release_lease(u, lease_hash))

        return await self._write(act)

    async def complete_lease(self, completion: LeaseCompletion) -> LeaseDone | Behind:
        return await self._write(lambda u: leasing.complete_lease(u, completion))
