"""Threads of plain `def` handlers, one at a time: the loop stands still while a thread runs, until the thread waits.

So a thread takes no virtual time, and nothing else runs meanwhile: what it does between two of its tools is one step.
It is anyio's own thread, changed so that a task that gives it work, or the result of a tool, continues only when the
thread uses the next tool or is idle again. `ocean.testing.VirtualLoop` is not involved.
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
    """Released by a thread that is about to wait, acquired by the loop that has let it run."""

    def wait_for_thread(self) -> None:
        if not self.acquire(timeout=PATIENCE_S):
            raise RuntimeError(f"a thread of a handler ran for {PATIENCE_S} s without a tool: has it hung?")


class _Work(Queue[Any]):
    """The work of a thread; None ends it."""

    def __init__(self, waits: _Waits) -> None:
        super().__init__()
        self._waits = waits
        self._is_at_work = False

    def put_nowait(self, item: Any) -> None:
        super().put_nowait(item)
        if item is not None:
            self._waits.wait_for_thread()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self._is_at_work:
            self._waits.release()
        item = super().get(block, timeout)
        self._is_at_work = item is not None
        return item


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Inside the block, run all threads of anyio this way."""
    waits, ask = _Waits(0), asyncio.run_coroutine_threadsafe

    class Thread(_asyncio.WorkerThread):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.queue = _Work(waits)

    def submit(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> "concurrent.futures.Future[Any]":
        answer = ask(work, loop)
        if isinstance(loop, VirtualLoop):
            answer.add_done_callback(lambda _: waits.wait_for_thread())
            waits.release()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_asyncio, "WorkerThread", Thread)
        patch.setattr(asyncio, "run_coroutine_threadsafe", submit)
        yield
