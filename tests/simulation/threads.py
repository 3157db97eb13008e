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

from ocean.testing.virtual_loop import VirtualLoop

PATIENCE_S = 60

_waits = threading.Semaphore(0)
"""Raised by a thread that is about to wait, lowered by the loop that lets it go on."""


def _stand_still() -> None:
    if not _waits.acquire(timeout=PATIENCE_S):
        raise RuntimeError(f"a thread of a handler was at work for {PATIENCE_S} s, without a tool: has it hung?")


class _Work(Queue[Any]):
    """What a thread is given; its end is None."""

    is_at_work = False

    def put_nowait(self, item: Any) -> None:
        super().put_nowait(item)
        if item is not None:
            _stand_still()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.is_at_work:
            _waits.release()
        item = super().get(block, timeout)
        self.is_at_work = item is not None
        return item


class _Thread(_asyncio.WorkerThread):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.queue = _Work()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Inside the block, all that anyio starts, and all that ask a `VirtualLoop` for something."""
    ask = asyncio.run_coroutine_threadsafe

    def asked(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> "concurrent.futures.Future[Any]":
        answer = ask(work, loop)
        if isinstance(loop, VirtualLoop):
            answer.add_done_callback(lambda _: _stand_still())
            _waits.release()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_asyncio, "WorkerThread", _Thread)
        patch.setattr(asyncio, "run_coroutine_threadsafe", asked)
        yield
