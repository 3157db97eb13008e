"""An asyncio event loop in virtual time, in which a seed decides which task runs next.

It never really sleeps: when no task is ready, time jumps to the next timer. One of the ready tasks is drawn at random,
so the same seed gives the same order, and another seed another one. If there is neither a ready task nor a timer, a
task waits for a wake-up that was lost, and the loop raises an error instead of hanging.

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(seed))) as runner:
        runner.run(main())

It has no threads and no sockets. It uses private names of asyncio (`_ready`, `_scheduled`, `_run_once`,
the context and callback of a handle); a test pins them.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVarTuple

from ocean.testing.simulation.processes import is_off_loop, loop_context, process_of

Ts = TypeVarTuple("Ts")

MANY = 100
IDLE_STEPS = 3
"""anyio polls a shielded task until it can be cancelled: that must not stop time."""


class Draws(Protocol):
    """The part of `random.Random` that the loop uses."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop - 1."""


class LostWakeUp(RuntimeError):
    """No task is ready and no timer is set, but the simulation has not ended."""


class _Numbered(asyncio.Task[Any]):
    number: int


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. Its seed decides the order in which ready tasks run."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, chance: Draws) -> None:
        super().__init__()
        self._chance = chance
        self._now = 0.0
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, asyncio.Handle]] = []
        self._idle_steps = 0
        # asyncio keeps no reference to tasks: one that is never woken would be garbage-collected at some point.
        self._tasks: list[_Numbered] = []
        self._many = MANY
        self.steps = 0
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback. There is only one thread, so the loop need not be woken."""
        return self.call_soon(callback, *args, context=loop_context() if context is None else context)

    def run_again(self, handles: Iterable[asyncio.Handle]) -> None:
        """Schedule callbacks that a process held."""
        self._ready.extend(handles)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any) -> Any:
        task = _Numbered(work, loop=loop, **more)
        task.number = next(self._numbers)
        self._tasks.append(task)
        if len(self._tasks) >= self._many:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._many = 2 * len(self._tasks) + MANY
        return task

    def _run_once(self) -> None:
        """Run one step: all plain callbacks in order, and then one task that is drawn."""
        self._fire_timers()
        callbacks = self._sorted()
        self.steps += 1
        for handle in callbacks:
            _run(handle)
        if self._waiting:
            self._idle_steps = 0
            _run(self._draw())
        elif callbacks:
            self._idle_steps += 1
        elif not self._scheduled and not self._stopping:
            raise LostWakeUp("no task is ready and no timer is set: a task waits for a wake-up that was lost")

    def _sorted(self) -> list[asyncio.Handle]:
        """Return the plain callbacks. Tasks are kept to be drawn; what must wait is held by its process."""
        callbacks = []
        while self._ready:
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            context: contextvars.Context = handle._context  # type: ignore[attr-defined]
            process = process_of(context)
            task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
            if process is not None and process.must_wait(context):
                process.hold(handle)
            elif isinstance(task, _Numbered):
                self._waiting.append((task.number, handle))
            elif is_off_loop(context):
                # A thread: it may run before or after any task.
                self._waiting.append((-1, handle))
            else:
                callbacks.append(handle)
        return callbacks

    def _draw(self) -> asyncio.Handle:
        """Draw one, ordered by task numbers: asyncio and anyio keep tasks in sets, whose order no seed decides."""
        self._waiting.sort(key=lambda waiting: waiting[0])
        return self._waiting.pop(self._chance.randrange(len(self._waiting)))[1]

    def _fire_timers(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        is_idle = not self._ready or self._idle_steps > IDLE_STEPS
        if scheduled and is_idle and not self._waiting and not self._stopping:
            self._now = max(self._now, scheduled[0].when())
        while scheduled and scheduled[0].when() <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)


def _run(handle: asyncio.Handle) -> None:
    if not handle._cancelled:
        handle._run()
