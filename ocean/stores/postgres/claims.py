"""Claims and leases: one statement each, that waits for no other."""

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ocean.kernel.store.claims import ClaimAsk, ClaimOrder, LeaseAsk, LeaseCompletion, LeaseDone, LeasedRun
from ocean.kernel.store.runs import Behind, Request
from ocean.state.effects import ABSENT, StoredRow
from ocean.state.records import Claim, Lock, RunStatus
from ocean.stores.postgres.client.batches import Writing
from ocean.stores.postgres.client.payloads import Words, claim_words, completion_words, lease_words
from ocean.stores.shared.claim_plan import MOST_ROUNDS
from ocean.stores.shared.rows import input_from, shown_from


class Claims(ABC):
    writing: Writing

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> ClaimOrder | None:
        return OrderedClaims(self.writing, claim_words(ask), claimed) if ask.limit > 0 else None

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        if ask.piggyback:
            # A claim of its own is on its way beside the group: sooner than behind it, under the writers' lock.
            return []
        return [claim_from(claim) for claim in await self._claim(claim_words(ask))]

    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        claims = await self._claim(lease_words(ask))
        return [LeasedRun(claim_from(claim), StoredRow(*claim["row"]) if claim["row"] else ABSENT) for claim in claims]

    async def _claim(self, words: Words) -> list[Any]:
        """One may only make ends that are owed, a bounded batch of them: then there is another."""
        for _ in range(MOST_ROUNDS):
            found = await self.writing.claim(words)
            if found["claims"] or not found["again"]:
                return list(found["claims"])
        return []

    async def renew_lease(
        self, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]], request: Request | None
    ) -> int:
        words = {"lease_hash": lease_hash, "lease_ms": lease_ms, "events": events}
        return int(await self.writing.write("renew_lease", words, request))

    async def release_lease(self, lease_hash: str, request: Request | None) -> RunStatus:
        return RunStatus(await self.writing.write("release_lease", {"lease_hash": lease_hash}, request))

    async def complete_lease(self, completion: LeaseCompletion) -> LeaseDone | Behind:
        answer = await self.writing.write("complete_lease", completion_words(completion))
        if "behind" in answer:
            return Behind()
        run_id, tick, status = answer
        return LeaseDone(run_id, tick, RunStatus(status) if status else None)


class OrderedClaims:
    """They go along with this process's next groups."""

    def __init__(self, writing: Writing, words: Words, claimed: Callable[[list[Claim]], None]) -> None:
        self._orders = writing.orders
        self._order = writing.order(words, lambda claims: claimed([*map(claim_from, claims)]))

    async def withdraw(self) -> None:
        await self._orders.withdraw(self._order)


def claim_from(claim: Mapping[str, Any]) -> Claim:
    run = claim["shown"]["run"]
    return Claim(
        run=shown_from(claim["shown"]),
        lock=Lock(run["run_id"], claim["epoch"], claim["lock_ms"]),
        tick=claim["tick"],
        call=claim["call"],
        reason=claim["reason"],
        inputs=tuple(map(input_from, claim["inputs"])),
        claimed_at=claim["claimed_at"],
        lock_expires_at=claim["lock_expires_at"],
        life=run["life"],
    )
