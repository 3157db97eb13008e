"""Claims that are ordered: one goes along with every group of changes, until something was due and is claimed by it."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio


class Order:
    """`ask` is what `ocean_write` is told; `claimed` is told of what was claimed, if anything."""

    def __init__(self, ask: str, claimed: Callable[[list[Any]], None]) -> None:
        self.ask = ask
        self.claimed = claimed
        self.is_back = asyncio.Event()


class Orders:
    """An order stands here, is on its way with a group, or is done with."""

    def __init__(self) -> None:
        self._standing: deque[Order] = deque()
        self._wanted_back: set[Order] = set()

    def put(self, ask: str, claimed: Callable[[list[Any]], None]) -> Order:
        order = Order(ask, claimed)
        self._standing.append(order)
        return order

    def take(self) -> Order | None:
        """For a group that is about to leave."""
        return self._standing.popleft() if self._standing else None

    def bring_back(self, order: Order, claims: list[Any], *, is_over: bool) -> None:
        """With what was claimed. With nothing it goes along with the next group, unless that is over."""
        if claims:
            order.claimed(claims)
        if claims or is_over or order in self._wanted_back:
            self._wanted_back.discard(order)
            order.is_back.set()
        else:
            self._standing.appendleft(order)

    async def withdraw(self, order: Order) -> None:
        """Take it back, or wait until it is. It cannot be cancelled: what it claims meanwhile is the caller's."""
        if order in self._standing:
            self._standing.remove(order)
        elif not order.is_back.is_set():
            self._wanted_back.add(order)
            with anyio.CancelScope(shield=True):
                await order.is_back.wait()
