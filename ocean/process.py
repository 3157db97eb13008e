"""How to run a long-lived process, as `ocean serve` does: `run_process(main())`."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG = 10_000
"""The allocations between two collections of young objects. Python's default, 700, is what one round of ticks makes."""


def run_process(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` like `asyncio.run`: on uvloop if it is installed, and with fewer garbage collections.

    Objects that exist now are excluded from collection, because they live as long as the process.
    """
    before = gc.get_threshold()
    if before[0]:  # 0 disables collection, and is kept.
        gc.set_threshold(max(YOUNG, before[0]), *before[1:])
    gc.freeze()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(main)
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
