"""Probation: after a crash, the runs that were at work together are called apart from all others, until the culprit is
alone. `ocean.state.suspects` has the rules.

    claims ──not suspected──▶ called at once, unless a suspect waits or is being called
           ──suspected──────▶ wait until no call is in progress ──▶ call a group ──▶ the next group

A process without suspects does nothing here but count its calls.
"""

from collections.abc import Iterator

import anyio

from ocean.kernel.store import Store
from ocean.state.errors import LockLost
from ocean.state.records import Claim, Lock
from ocean.state.suspects import most_together


class Probation:
    """Decides when the calls of one instance may begin."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._calls: set[Lock] = set()
        """The calls in progress of runs that are not suspected, as long as they hold their locks."""
        self._waiting: list[Claim] = []
        self._group: list[Claim] = []
        """The suspects that are being called."""
        self._lost: list[Claim] = []
        self._is_forming = False
        self._moved = anyio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether suspects wait or are being called, so that other calls have to wait: claim nothing meanwhile."""
        return bool(self._waiting or self._group)

    async def enter(self, claim: Claim) -> None:
        """Wait until the call may begin. `leave` must follow, unless this raises."""
        if claim.crash_company is not None:
            await self._enter_apart(claim)
            return
        while self.is_closed:
            await self._moved.wait()
        self._calls.add(claim.lock)

    def leave(self, claim: Claim) -> None:
        """The call has ended, or has lost its lock: what it still does is void, however long it takes."""
        self._calls.discard(claim.lock)
        if claim in self._group:
            self._group.remove(claim)
        if self._waiting or claim.crash_company is not None:
            self._notify()

    def _notify(self) -> None:
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    async def _enter_apart(self, claim: Claim) -> None:
        self._waiting.append(claim)
        try:
            while claim not in self._group:
                if claim in self._lost:
                    raise LockLost(f"run {claim.run.run_id} was taken over while it waited for its call")
                if self._is_any_in_the_way() or self._is_forming:
                    await self._moved.wait()
                else:
                    await self._form_group()
        except BaseException:
            for claims in (self._waiting, self._lost, self._group):
                if claim in claims:
                    claims.remove(claim)
            self._notify()
            raise

    def _is_any_in_the_way(self) -> bool:
        """Whether a call is in progress other than of the waiting runs themselves, whose older calls are void."""
        waiting = {claim.run.run_id for claim in self._waiting}
        return bool(self._group) or any(lock.run_id not in waiting for lock in self._calls)

    async def _form_group(self) -> None:
        """Choose the suspects that are called next, and store that they are."""
        group = list(self._next_group())
        self._is_forming = True
        try:
            with anyio.CancelScope(shield=True):
                lost = await self._store.call_apart([each.lock for each in group])
        finally:
            self._is_forming = False
            self._notify()
        for each in group:
            if each in self._waiting:
                self._waiting.remove(each)
                (self._lost if each.lock in lost else self._group).append(each)

    def _next_group(self) -> Iterator[Claim]:
        """Return the suspects of the largest crash first, as many as each of them may be called with."""
        by_company = sorted(self._waiting, key=lambda claim: -(claim.crash_company or 0))
        for count, claim in enumerate(by_company, start=1):
            if count > most_together(claim.crash_company or 0):
                return
            yield claim
