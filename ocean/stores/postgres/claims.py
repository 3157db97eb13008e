"""Claims and leases. A claim is one statement that waits for no other."""

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ocean.kernel.store.claims import ClaimAsk, ClaimOrder, LeaseAsk, LeaseCompletion, LeaseDone, LeasedRun
from ocean.kernel.store.runs import Behind, Request
from ocean.state.effects import ABSENT, StoredRow
from ocean.state.records import Claim, Lock, RunStatus
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.payloads import Payload, claim_payload, completion_payload, lease_payload
from ocean.stores.shared.claim_plan import MOST_ROUNDS
from ocean.stores.shared.rows import input_from, run_info_from


class Claims(ABC):
    """The store's verbs about claims and leases."""

    batches: WriteBatches

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> ClaimOrder | None:
        return PostgresClaimOrder(self.batches, claim_payload(ask), claimed) if ask.limit > 0 else None

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        if ask.piggyback:
            # A separate claim is sent at the same time, and is done sooner than one under the writers' lock.
            return []
        return [claim_from(claim) for claim in await self._claim(claim_payload(ask))]

    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        claims = await self._claim(lease_payload(ask))
        return [LeasedRun(claim_from(claim), StoredRow(*claim["row"]) if claim["row"] else ABSENT) for claim in claims]

    async def _claim(self, payload: Payload) -> list[Any]:
        """Repeat a claim that has claimed nothing but ended a bounded batch of overdue runs."""
        for _ in range(MOST_ROUNDS):
            found = await self.batches.claim(payload)
            if found["claims"] or not found["again"]:
                return list(found["claims"])
        return []

    async def renew_lease(
        self, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]], request: Request | None
    ) -> int:
        payload = {"lease_hash": lease_hash, "lease_ms": lease_ms, "events": events}
        return int(await self.batches.write("renew_lease", payload, request))

    async def release_lease(self, lease_hash: str, request: Request | None) -> RunStatus:
        return RunStatus(await self.batches.write("release_lease", {"lease_hash": lease_hash}, request))

    async def complete_lease(self, completion: LeaseCompletion) -> LeaseDone | Behind:
        answer = await self.batches.write("complete_lease", completion_payload(completion))
        if "behind" in answer:
            return Behind()
        run_id, tick, status = answer
        return LeaseDone(run_id, tick, RunStatus(status) if status else None)


class PostgresClaimOrder:
    """The kernel's `ClaimOrder`: a claim that is sent with this process's next groups."""

    def __init__(self, batches: WriteBatches, payload: Payload, claimed: Callable[[list[Claim]], None]) -> None:
        self._pending_claims = batches.pending_claims
        self._claim = batches.add_claim(payload, lambda claims: claimed([*map(claim_from, claims)]))

    async def withdraw(self) -> None:
        await self._pending_claims.withdraw(self._claim)


def claim_from(claim: Mapping[str, Any]) -> Claim:
    run = claim["shown"]["run"]
    return Claim(
        run=run_info_from(claim["shown"]),
        lock=Lock(run["run_id"], claim["epoch"], claim["lock_ms"]),
        tick=claim["tick"],
        call=claim["call"],
        reason=claim["reason"],
        inputs=tuple(map(input_from, claim["inputs"])),
        claimed_at=claim["claimed_at"],
        lock_expires_at=claim["lock_expires_at"],
        life=run["life"],
        crash_company=run["crash_company"],
    )
