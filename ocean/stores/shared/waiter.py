"""Waiting for a result that must be known even if the waiting scope is cancelled."""

import asyncio
import math

import anyio


class Waiter:
    """A flag that one task waits for on an event loop.

    `wait` goes on although a cancel scope around it is cancelled; the cancellation arrives afterwards. If the task
    itself is cancelled, `wait` raises at once. A shielding scope does the same but costs several times as much, so one
    is opened only after a cancellation.
    """

    __slots__ = ("_future", "_is_set")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_set = False

    def set(self) -> None:
        """Wake the task. Must be called on the waiter's event loop."""
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
