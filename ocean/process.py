"""How a process that stays up is run: `ocean serve` is, and a program of yours may be.

run_process(main())
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG = 10_000
"""So many more objects than are gone again are looked through; Python's own 700 is what one round of ticks makes."""


def run_process(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` as `asyncio.run` does: on uvloop where it is installed, and with garbage looked for less often.

    What is loaded by now is not looked through again: it stays as long as the process.
    """
    before = gc.get_threshold()
    if before[0]:  # 0 is never, and stays so.
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
