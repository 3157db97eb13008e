"""Whoever waits for an answer that must be known."""

import asyncio
import math

import anyio


class Waiter:
    """On an event loop. It waits although a scope around it is cancelled, and hears of that afterwards; whoever cancels
    the task itself is heard at once.

    A shielding scope says the same, and takes several times as long: so there is one only for who is cancelled.
    """

    __slots__ = ("_future", "_is_set")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_set = False

    def set(self) -> None:
        """On that loop."""
        self._is_set = True
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        try:
            await self._future
        except asyncio.CancelledError:
            if anyio.current_effective_deadline() != -math.inf:
                raise
            with anyio.CancelScope(shield=True):
                while not self._is_set:
                    self._future = asyncio.get_running_loop().create_future()
                    await self._future
