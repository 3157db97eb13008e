"""Claims that are ordered: one goes along with every group of changes, until something was due and is claimed by it."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio


class PendingClaim:
    """`ask` is what `ocean_write` is told; `claimed` is told of what was claimed, if anything."""

    def __init__(self, ask: str, claimed: Callable[[list[Any]], None]) -> None:
        self.ask = ask
        self.claimed = claimed
        self.is_done = asyncio.Event()


class PendingClaims:
    """An order stands here, is on its way with a group, or is done with."""

    def __init__(self) -> None:
        self._waiting: deque[PendingClaim] = deque()
        self._withdrawn: set[PendingClaim] = set()

    def put(self, ask: str, claimed: Callable[[list[Any]], None]) -> PendingClaim:
        order = PendingClaim(ask, claimed)
        self._waiting.append(order)
        return order

    def take(self) -> PendingClaim | None:
        """For a group that is about to leave."""
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, order: PendingClaim, claims: list[Any], *, is_over: bool) -> None:
        """With what was claimed. With nothing it goes along with the next group, unless that is over."""
        if claims:
            order.claimed(claims)
        if claims or is_over or order in self._withdrawn:
            self._withdrawn.discard(order)
            order.is_done.set()
        else:
            self._waiting.appendleft(order)

    async def withdraw(self, order: PendingClaim) -> None:
        """Take it back, or wait until it is. It cannot be cancelled: what it claims meanwhile is the caller's."""
        if order in self._waiting:
            self._waiting.remove(order)
        elif not order.is_done.is_set():
            self._withdrawn.add(order)
            with anyio.CancelScope(shield=True):
                await order.is_done.wait()
