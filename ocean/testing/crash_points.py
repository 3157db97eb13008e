"""Places at which a process can die, and one call of a handler that may die at one of them.

A dead call stands still: nothing of it runs on, neither its next line nor a `finally`. Only when everything has been
looked at is it buried, that is, unwound by `LockLost`, so that no task and no thread is left over.
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

OURS = str(Path(__file__).parents[1]) + os.sep
LIBRARIES = sysconfig.get_path("purelib") + os.sep
NOBODYS = (OURS, str(Path(anyio.__file__).parent) + os.sep, str(Path(asyncio.__file__).parent) + os.sep)
BURIAL_SECONDS = 5

CALLED_AGAIN = "called again by the same process, instead of being committed"
"""The one thing done to a call that does not kill its process: its run is given back."""

living: ContextVar["Life | None"] = ContextVar("living", default=None)
"""The call in which this code runs, if it is one that may die."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the clog's own code."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        file = os.path.relpath(self.file) if self.file.startswith(os.getcwd() + os.sep) else self.file
        return f"{file}:{self.line} in {self.function}"

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where a call of a tick was killed: `what` it was doing there, and the line, if it was in the clog's code.

    `nth` counts the times that the same call came by the same place.
    """

    clog_id: str
    run_id: str
    tick: int
    call: int
    what: str
    place: Place | None = None
    nth: int = 1

    def __str__(self) -> str:
        again = f", call {self.call}" if self.call > 1 else ""
        return f"{self.deed}, in tick {self.tick}{again} of {self.clog_id} {self.run_id}"

    @property
    def deed(self) -> str:
        """What was done to the call there."""
        times = f" (time {self.nth})" if self.nth > 1 else ""
        return self.what if self.what == CALLED_AGAIN else f"killed {self.what}{times}"


class Course:
    """One performance of a scenario: the places it came by, and the one at which it is to be killed."""

    def __init__(self, target: CrashPoint | None = None, *, kills_on_end: bool = False) -> None:
        self.target = target
        self.kills_on_end = kills_on_end
        self.spared: set[tuple[str, int]] = set()
        self.points: list[CrashPoint] = []
        self.is_killed = False
        self.lives: list[Life] = []
        self._times: Counter[CrashPoint] = Counter()

    def kills_at(self, point: CrashPoint) -> bool:
        """Come by a place; true if the process dies there."""
        self._times[point] += 1
        point = replace(point, nth=self._times[point])
        self.points.append(point)
        if self.is_killed or point != self.target:
            return False
        self.is_killed = True
        return True

    async def bury(self) -> None:
        for life in self.lives:
            await life.bury()


class Life:
    """One call of a handler, in a task of its own, which can be left standing where it is."""

    def __init__(self, course: Course, point: CrashPoint) -> None:
        self._course = course
        self._point = point
        self._still: list[asyncio.Future[None]] = []
        self._is_buried = False
        self.task: asyncio.Task[Any] | None = None
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        course.lives.append(self)

    @property
    def is_dead(self) -> bool:
        return self.death.done()

    async def come_by(self, what: str, place: Place | None) -> None:
        """Go on from here, or never."""
        if self.is_dead or self.dies_at(what, place):
            await self.stand_still()

    def dies_at(self, what: str, place: Place | None) -> bool:
        if not self.is_dead and self._course.kills_at(replace(self._point, what=what, place=place)):
            self.death.set_result(None)
            return True
        return False

    async def stand_still(self) -> None:
        if self._is_buried:
            raise LockLost("this process was killed; nothing of it goes on")
        still: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._still.append(still)
        await still

    async def bury(self) -> None:
        """Unwind what stands still. How that ends is nobody's business any more."""
        self._is_buried = True
        for still in self._still:
            if not still.done():
                still.set_exception(LockLost("this process was killed; nothing of it goes on"))
                still.exception()
        if self.task is not None and not self.task.done():
            self.task.cancel()
            await asyncio.wait({self.task}, timeout=BURIAL_SECONDS)
        if self.task is not None and self.task.done() and not self.task.cancelled():
            self.task.exception()


def place_of_caller() -> Place | None:
    """The innermost line of the clog's own code that is being executed; None if that is in another thread."""
    return _place([*_frames(sys._getframe(1))])


def place_of_own_wait(coroutine: Any) -> Place | None:
    """Where a suspended handler waits for something of its own; None if it waits in a tool, or for a plain function."""
    inner: list[FrameType] = []
    for frame in _suspended(coroutine):
        if frame.f_code.co_filename.startswith(OURS):
            return _place(inner) if frame.f_code is invoke.__code__ else None
        inner.append(frame)
    return _place(inner)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Innermost first, up to the event loop: whoever runs that is not the one who does this."""
    while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
        yield frame
        frame = frame.f_back


def _suspended(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine that waits, innermost first."""
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


def _place(frames: list[FrameType]) -> Place | None:
    """The innermost of them outside of Ocean, asyncio and anyio; rather not one in an installed library."""
    places = [
        Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame in frames
        if not frame.f_code.co_filename.startswith(NOBODYS)
    ]
    return next((place for place in places if not place.file.startswith(LIBRARIES)), places[0] if places else None)
