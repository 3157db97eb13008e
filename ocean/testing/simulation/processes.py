"""Simulated processes: the tasks and timers of one can be paused, blocked and killed without affecting others.

A process is a value in the context of tasks and timers, which inherit it from the task that starts them. The
`VirtualLoop` does not run what belongs to a paused or blocked process, and never again what belongs to a killed one:
not even a `finally`, as after a SIGKILL.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ocean.testing.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("ocean_process", default=None)
_is_off_loop: contextvars.ContextVar[bool] = contextvars.ContextVar("ocean_off_loop", default=False)


def process_of(context: contextvars.Context) -> "Process | None":
    """Return the process to which a task or timer belongs."""
    return context.get(_process)


def is_off_loop(context: contextvars.Context) -> bool:
    """Return whether a callback stands for a thread of its process."""
    return context.get(_is_off_loop) is True


class Process:
    """A simulated process. Blocked: its event loop does not run, but its threads do. Paused: nothing of it runs."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_reaped = False
        self._loop = loop
        self._blocked_until = 0.0
        self._paused_until = 0.0
        self._held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task of this process. What the task starts belongs to the process, too."""
        task: asyncio.Task[T] = self._loop.create_task(work, context=self.context())
        self.tasks.append(task)
        return task

    def context(self, *, is_off_loop: bool = False) -> contextvars.Context:
        """Return a context of this process."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        context.run(_is_off_loop.set, is_off_loop)
        return context

    def block(self, ms: int) -> None:
        """Block the event loop of this process."""
        self._blocked_until = max(self._blocked_until, self._loop.time() + ms / 1000)
        self._loop.call_later(ms / 1000, self._release, context=contextvars.Context())

    def pause(self, ms: int) -> None:
        """Stop everything in this process for a time."""
        self._paused_until = max(self._paused_until, self._loop.time() + ms / 1000)
        self._loop.call_later(ms / 1000, self._release, context=contextvars.Context())

    def kill(self) -> None:
        """Kill the process: nothing of it runs any more."""
        self.is_dead = True

    def reap(self) -> None:
        """Unwind the tasks, after the simulation. This must have no effect."""
        self.is_reaped = True
        self._release()
        for task in self.tasks:
            task.cancel()

    def must_wait(self, context: contextvars.Context) -> bool:
        """Return whether a callback of this process must not run now."""
        if self.is_reaped:
            return False
        now = self._loop.time()
        is_blocked = now < self._blocked_until and not context.get(_is_off_loop)
        return self.is_dead or is_blocked or now < self._paused_until

    def hold(self, handle: asyncio.Handle) -> None:
        """Keep a callback until the process runs again."""
        self._held.append(handle)

    def _release(self) -> None:
        held, self._held = self._held, []
        self._loop.run_again(held)


def loop_context() -> contextvars.Context:
    """Return the context of a callback that a thread of this process schedules on its event loop."""
    context = contextvars.copy_context()
    context.run(_is_off_loop.set, False)
    return context
