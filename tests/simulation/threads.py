"""Threads of plain `def` handlers, one at a time: a thread runs while the loop stands still, until it waits for it.

So a thread takes no virtual time, and nothing happens beside it: what it does between two of its tools is one step. It
is anyio's own thread with two more habits. Whoever gives it something to do, work or the answer to what it has asked,
goes on only when the thread has asked for something else or is idle again. `ocean.testing.VirtualLoop` needs not know.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import pytest
from anyio._backends import _asyncio

from ocean.testing.simulation.virtual_loop import VirtualLoop

PATIENCE_S = 60


class _Waits(threading.Semaphore):
    """Raised by a thread that is about to wait, lowered by the loop that has let it go on."""

    def stand_still(self) -> None:
        if not self.acquire(timeout=PATIENCE_S):
            raise RuntimeError(f"a thread of a handler was at work for {PATIENCE_S} s, without a tool: has it hung?")


class _Work(Queue[Any]):
    """What a thread is given; its end is None."""

    def __init__(self, waits: _Waits) -> None:
        super().__init__()
        self._waits = waits
        self._is_at_work = False

    def put_nowait(self, item: Any) -> None:
        super().put_nowait(item)
        if item is not None:
            self._waits.stand_still()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self._is_at_work:
            self._waits.release()
        item = super().get(block, timeout)
        self._is_at_work = item is not None
        return item


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Inside the block, all that anyio starts, and all that ask a `VirtualLoop` for something."""
    waits, ask = _Waits(0), asyncio.run_coroutine_threadsafe

    class Thread(_asyncio.WorkerThread):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.queue = _Work(waits)

    def asked(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> "concurrent.futures.Future[Any]":
        answer = ask(work, loop)
        if isinstance(loop, VirtualLoop):
            answer.add_done_callback(lambda _: waits.stand_still())
            waits.release()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_asyncio, "WorkerThread", Thread)
        patch.setattr(asyncio, "run_coroutine_threadsafe", asked)
        yield
