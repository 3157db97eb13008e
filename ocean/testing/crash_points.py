"""Points at which a process can be killed, and one call of a handler that can be killed at one of them.

A killed call is frozen where it is: neither its next line nor a `finally` runs. At the end of the scenario, when its
results have been read, it is unwound by `LockLost`, so that no task and no thread is left over.
"""

import asyncio
import linecache
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

from ocean.kernel.invoke import invoke
from ocean.state.errors import LockLost

OCEAN = str(Path(__file__).parents[1]) + os.sep
LIBRARIES = sysconfig.get_path("purelib") + os.sep
NOT_THE_CLOGS = (OCEAN, str(Path(anyio.__file__).parent) + os.sep, str(Path(asyncio.__file__).parent) + os.sep)
"""Folders whose code is never reported as the line of a crash."""
UNWIND_SECONDS = 5

CALLED_AGAIN = "called again by the same process, instead of being committed"
"""The only event that does not kill the process: the run is given back."""

current_call: ContextVar["CrashableCall | None"] = ContextVar("current_call", default=None)
"""The call in which this code runs, if it is one that can be killed."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the clog's own code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        file = os.path.relpath(self.file) if self.file.startswith(os.getcwd() + os.sep) else self.file
        return f"{file}:{self.line} in {self.function}"

    @property
    def source(self) -> str:
        """The text of the line."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where a call of a tick was killed: `what` it was doing, and the line, if it was in the clog's code.

    `nth` counts how often the same call has reached the same point.
    """

    clog_id: str
    run_id: str
    tick: int
    call: int
    what: str
    place: SourceLine | None = None
    nth: int = 1

    def __str__(self) -> str:
        again = f", call {self.call}" if self.call > 1 else ""
        return f"{self.deed}, in tick {self.tick}{again} of {self.clog_id} {self.run_id}"

    @property
    def deed(self) -> str:
        """What was done to the call there."""
        times = f" (time {self.nth})" if self.nth > 1 else ""
        return self.what if self.what == CALLED_AGAIN else f"killed {self.what}{times}"


class ScenarioExecution:
    """One execution of a scenario: the points it has reached, and the `target` at which it is to be killed."""

    def __init__(self, target: CrashPoint | None = None, *, kills_on_end: bool = False) -> None:
        self.target = target
        self.kills_on_end = kills_on_end
        self.spared: set[tuple[str, int]] = set()
        self.points: list[CrashPoint] = []
        self.is_killed = False
        self.calls: list[CrashableCall] = []
        self._times: Counter[CrashPoint] = Counter()

    def kills_at(self, point: CrashPoint) -> bool:
        """Record that a point is reached, and return whether the process is killed there."""
        self._times[point] += 1
        point = replace(point, nth=self._times[point])
        self.points.append(point)
        if self.is_killed or point != self.target:
            return False
        self.is_killed = True
        return True

    async def unwind(self) -> None:
        """End the tasks of killed calls."""
        for call in self.calls:
            await call.unwind()


class CrashableCall:
    """One call of a handler, in a task of its own, which can be frozen where it is."""

    def __init__(self, execution: ScenarioExecution, point: CrashPoint) -> None:
        self._execution = execution
        self._point = point
        self._frozen: list[asyncio.Future[None]] = []
        self._is_unwound = False
        self.task: asyncio.Task[Any] | None = None
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        execution.calls.append(self)

    @property
    def is_dead(self) -> bool:
        """Whether the call was killed."""
        return self.death.done()

    async def reach(self, what: str, place: SourceLine | None) -> None:
        """Reach a point: return, or freeze if the call is killed here or was killed before."""
        if self.is_dead or self.dies_at(what, place):
            await self.freeze()

    def dies_at(self, what: str, place: SourceLine | None) -> bool:
        """Reach a point, and return whether the call is killed there."""
        if not self.is_dead and self._execution.kills_at(replace(self._point, what=what, place=place)):
            self.death.set_result(None)
            return True
        return False

    async def freeze(self) -> None:
        """Wait until the call is unwound."""
        if self._is_unwound:
            raise LockLost("this process was killed: it must do nothing more")
        frozen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frozen.append(frozen)
        await frozen

    async def unwind(self) -> None:
        """End the frozen task. Its result does not matter any more."""
        self._is_unwound = True
        for frozen in self._frozen:
            if not frozen.done():
                frozen.set_exception(LockLost("this process was killed: it must do nothing more"))
                frozen.exception()
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=UNWIND_SECONDS)
        if self.task is not None and self.task.done() and not self.task.cancelled():
            self.task.exception()


def line_of_caller() -> SourceLine | None:
    """Return the innermost line of the clog's code that is being executed; None if it is in another thread."""
    return _source_line([*_frames(sys._getframe(1))])


def line_of_wait(coroutine: Any) -> SourceLine | None:
    """Return the line at which a suspended handler waits; None if it waits in a tool of Ocean or for a thread."""
    inner: list[FrameType] = []
    for frame in _suspended(coroutine):
        if frame.f_code.co_filename.startswith(OCEAN):
            return _source_line(inner) if frame.f_code is invoke.__code__ else None
        inner.append(frame)
    return _source_line(inner)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames, innermost first, up to the event loop: the frames beyond it belong to other code."""
    while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
        yield frame
        frame = frame.f_back


def _suspended(coroutine: Any) -> Iterator[FrameType]:
    """Return the frames of a suspended coroutine, innermost first."""
    frames: list[FrameType] = []
    waiting = coroutine
    while waiting is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), None)
        if kind is None:
            break
        if (frame := getattr(waiting, f"{kind}_frame")) is not None:
            frames.append(frame)
        waiting = getattr(waiting, {"cr": "cr_await", "gi": "gi_yieldfrom", "ag": "ag_await"}[kind])
    return reversed(frames)


def _source_line(frames: list[FrameType]) -> SourceLine | None:
    """Return the innermost line outside of Ocean, asyncio and anyio, and if possible outside of installed libraries."""
    lines = [
        SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame in frames
        if not frame.f_code.co_filename.startswith(NOT_THE_CLOGS)
    ]
    return next((line for line in lines if not line.file.startswith(LIBRARIES)), lines[0] if lines else None)
