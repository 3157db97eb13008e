"""Pending claims: one is sent with every group of writes, until something was due and it has claimed that."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio


class PendingClaim:
    """`ask` is the argument of `ocean_write`; `claimed` is called with what was claimed, if anything."""

    def __init__(self, ask: str, claimed: Callable[[list[Any]], None]) -> None:
        self.ask = ask
        self.claimed = claimed
        self.is_done = asyncio.Event()


class PendingClaims:
    """A claim is waiting here, in flight with a group, or done."""

    def __init__(self) -> None:
        self._waiting: deque[PendingClaim] = deque()
        self._withdrawn: set[PendingClaim] = set()

    def add(self, ask: str, claimed: Callable[[list[Any]], None]) -> PendingClaim:
        claim = PendingClaim(ask, claimed)
        self._waiting.append(claim)
        return claim

    def take(self) -> PendingClaim | None:
        """Take the next claim for a group that is about to be sent."""
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, claim: PendingClaim, claims: list[Any], *, is_over: bool) -> None:
        """Report what a claim has claimed with its group. If nothing, it is sent with the next group, unless the group
        has failed (`is_over`) or the claim was withdrawn."""
        if claims:
            claim.claimed(claims)
        if claims or is_over or claim in self._withdrawn:
            self._withdrawn.discard(claim)
            claim.is_done.set()
        else:
            self._waiting.appendleft(claim)

    async def withdraw(self, claim: PendingClaim) -> None:
        """Remove a waiting claim, or wait until it is done. Not cancellable: the caller owns what it claims."""
        if claim in self._waiting:
            self._waiting.remove(claim)
        elif not claim.is_done.is_set():
            self._withdrawn.add(claim)
            with anyio.CancelScope(shield=True):
                await claim.is_done.wait()
