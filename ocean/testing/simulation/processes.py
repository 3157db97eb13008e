"""Processes of a simulation: what belongs to one can be paused, blocked and killed apart from everything else.

A process is a mark on the context of tasks and timers: whatever it starts carries its mark. The `VirtualLoop` runs
nothing of a process that is not to run now, and nothing ever again of one that was killed: no `finally`, no
goodbye, as after a SIGKILL.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ocean.testing.simulation.virtual_loop import VirtualLoop

T = TypeVar("T")

_home: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("ocean_process", default=None)
_is_off_loop: contextvars.ContextVar[bool] = contextvars.ContextVar("ocean_off_loop", default=False)


def home_of(context: contextvars.Context) -> "Process | None":
    return context.get(_home)


def is_off_loop(context: contextvars.Context) -> bool:
    return context.get(_is_off_loop) is True


class Process:
    """`blocked`: its event loop stands still, but its threads go on. `paused`: all of it stands still."""

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
        """A task of this process, and so is everything that it starts."""
        task: asyncio.Task[T] = self._loop.create_task(work, context=self.context())
        self.tasks.append(task)
        return task

    def context(self, *, is_off_loop: bool = False) -> contextvars.Context:
        context = contextvars.copy_context()
        context.run(_home.set, self)
        context.run(_is_off_loop.set, is_off_loop)
        return context

    def block(self, ms: int) -> None:
        """Something holds the event loop for so long."""
        self._blocked_until = max(self._blocked_until, self._loop.time() + ms / 1000)
        self._loop.call_later(ms / 1000, self._release, context=contextvars.Context())

    def pause(self, ms: int) -> None:
        """The machine stands still, or the process was stopped."""
        self._paused_until = max(self._paused_until, self._loop.time() + ms / 1000)
        self._loop.call_later(ms / 1000, self._release, context=contextvars.Context())

    def kill(self) -> None:
        self.is_dead = True

    def reap(self) -> None:
        """After the simulation: let what was killed unwind, so that nothing of it is left. It must have no effect."""
        self.is_reaped = True
        self._release()
        for task in self.tasks:
            task.cancel()

    def must_wait(self, context: contextvars.Context) -> bool:
        if self.is_reaped:
            return False
        now = self._loop.time()
        is_blocked = now < self._blocked_until and not context.get(_is_off_loop)
        return self.is_dead or is_blocked or now < self._paused_until

    def hold(self, handle: asyncio.Handle) -> None:
        self._held.append(handle)

    def _release(self) -> None:
        held, self._held = self._held, []
        self._loop.run_again(held)


def on_the_loop() -> contextvars.Context:
    """The context of what a thread of this process asks its event loop to do."""
    context = contextvars.copy_context()
    context.run(_is_off_loop.set, False)
    return context
