"""An asyncio event loop in virtual time, in which chance decides who goes next.

Nobody really sleeps: when nothing is left to do, time jumps to the next timer. Of the tasks that could go on, one is
drawn; so the same seed gives the same order, and another seed another one. If there is neither a task that could go on
nor a timer, somebody waits for a wake-up that was lost, and the loop says so instead of hanging.

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(Random(seed))) as runner:
        runner.run(main())

It runs no threads and knows no sockets. It stands on private names of asyncio (`_ready`, `_scheduled`, `_run_once`,
the context and callback of a handle); a test pins them.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVarTuple

from ocean.testing.simulation.processes import home_of, is_off_loop, on_the_loop

Ts = TypeVarTuple("Ts")

MANY = 100
IDLE_STEPS = 3
"""anyio asks a shielded task again and again whether it can be cancelled now: that must not hold up time."""


class Draws(Protocol):
    """What the loop needs of a `random.Random`."""

    def randrange(self, stop: int, /) -> int: ...


class LostWakeUp(RuntimeError):
    """Nothing can go on and no timer is set, and yet the simulation is not over."""


class _Numbered(asyncio.Task[Any]):
    number: int


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, whose seed decides the order of what is ready."""

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
        # asyncio itself holds no task: one that nobody will ever wake would be destroyed at some time or other.
        self._tasks: list[_Numbered] = []
        self._many = MANY
        self.steps = 0
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """There is one thread: whoever says that it is another has no loop to wake."""
        return self.call_soon(callback, *args, context=on_the_loop() if context is None else context)

    def run_again(self, handles: Iterable[asyncio.Handle]) -> None:
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
        """One step: all plain callbacks in their order, and then one task that is drawn."""
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
            raise LostWakeUp("nothing can go on and no timer is set: somebody waits for what will never come")

    def _sorted(self) -> list[asyncio.Handle]:
        """The plain callbacks. Tasks go where they are drawn from, and what must wait is held by its process."""
        callbacks = []
        while self._ready:
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            context: contextvars.Context = handle._context  # type: ignore[attr-defined]
            home = home_of(context)
            task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
            if home is not None and home.must_wait(context):
                home.hold(handle)
            elif isinstance(task, _Numbered):
                self._waiting.append((task.number, handle))
            elif is_off_loop(context):
                # A thread: it goes before or after any task.
                self._waiting.append((-1, handle))
            else:
                callbacks.append(handle)
        return callbacks

    def _draw(self) -> asyncio.Handle:
        """By the number of its task: what asyncio and anyio keep in sets comes in no order that a seed decides."""
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
