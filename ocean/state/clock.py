"""Time as an argument: the clock that the kernel uses, and the system's clock.

`now` is the current time. `call_later` is a callback on the event loop, for time limits. `every` calls from a thread
outside the event loop: locks must be renewed while a handler blocks the loop.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol

Cancel = Callable[[], None]


class Clock(Protocol):
    """The clock that the kernel uses."""

    def now(self) -> int:
        """Return milliseconds since 1970, UTC."""

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        """Call `then` on the running event loop after `ms`, unless cancelled."""

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """Call `beat` every `ms` from a thread that no handler can block, until cancelled."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        """Call `then` on the running event loop after `ms`, unless cancelled."""
        return asyncio.get_running_loop().call_later(ms / 1000, then).cancel

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """Call `beat` every `ms` from its own thread, until cancelled."""
        stopped = threading.Event()

        def keep_beating() -> None:
            while not stopped.wait(ms / 1000):
                beat()

        threading.Thread(target=keep_beating, name="ocean-beat", daemon=True).start()
        return stopped.set


async def sleep(clock: Clock, ms: int) -> None:
    """Wait `ms` by the clock."""
    woken = asyncio.Event()
    cancel = clock.call_later(max(ms, 0), woken.set)
    try:
        await woken.wait()
    finally:
        cancel()
