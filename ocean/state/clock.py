"""Time as an argument: what the kernel needs of a clock, and the real one.

Three needs, three verbs. `now` is a reading. `call_later` is a callback on the event loop (a handler's time
limit). `every` is a beat from *outside* the event loop (lock renewal must go on while a handler blocks the loop).
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol

Cancel = Callable[[], None]


class Clock(Protocol):
    """What the kernel needs of a clock."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        """Call `then` on the running event loop after `ms`, unless cancelled."""

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """Call `beat` every `ms` from a thread that no handler can block, until cancelled."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Milliseconds since 1970, UTC."""
        return time.time_ns() // 1_000_000

    def call_later(self, ms: int, then: Callable[[], None]) -> Cancel:
        """On the running event loop."""
        return asyncio.get_running_loop().call_later(ms / 1000, then).cancel

    def every(self, ms: int, beat: Callable[[], None]) -> Cancel:
        """From a thread of its own."""
        stopped = threading.Event()

        def keep_beating() -> None:
            while not stopped.wait(ms / 1000):
                beat()

        threading.Thread(target=keep_beating, name="ocean-beat", daemon=True).start()
        return stopped.set


async def sleep(clock: Clock, ms: int) -> None:
    woken = asyncio.Event()
    cancel = clock.call_later(max(ms, 0), woken.set)
    try:
        await woken.wait()
    finally:
        cancel()
