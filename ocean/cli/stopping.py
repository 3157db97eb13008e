"""SIGTERM and Ctrl-C: a command states what it waits for, waits, and gives back the runs that it cannot finish.

The first signal begins the stop. A Ctrl-C after it ends the wait: handlers are cancelled and their runs given back. One
more ends the process at once, for code that blocks the event loop. SIGTERM is never counted twice, since supervisors
and shells repeat it.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import typer

from ocean import Ocean
from ocean.cli.output import printable
from ocean.kernel.shutdown import TickAtWork

INTERRUPTED, TERMINATED = 130, 143
STOP_GRACE_MS = 8_000
"""Docker and Cloud Run kill a process 10 seconds after SIGTERM. What follows the grace takes a second or two."""
RETURN_S = 1.0
"""After a stop, how long a command may take to return by itself before it is cancelled."""
MOST_NAMED = 3

Write = Callable[[str], object]


def to_stderr(text: str) -> None:
    """Write a plain line for the person at the terminal."""
    with suppress(OSError):
        typer.echo(text, err=True)


def waiting_line(ticks: Sequence[TickAtWork], grace_ms: int, *, is_interrupt: bool) -> str:
    """Return what a stop waits for, for how long, and what the next Ctrl-C does."""
    named = [f"{printable(one.clog_id)} {printable(one.run_id)} tick {one.tick}" for one in ticks[:MOST_NAMED]]
    if len(ticks) > MOST_NAMED:
        named.append(f"{len(ticks) - MOST_NAMED} more")
    key = "press Ctrl-C again" if is_interrupt else "press Ctrl-C"
    return (
        f"stopping: waiting for {len(ticks)} tick{'s' if len(ticks) > 1 else ''} ({', '.join(named)}) "
        f"for at most {grace_ms / 1_000:g} s; {key} to stop at once, their runs are then given back"
    )


class StopSignals:
    """Catches SIGTERM and SIGINT. `begin` is called on the event loop at the first one."""

    def __init__(self, ocean: Ocean, grace_ms: int, begin: Callable[[], object], write: Write = to_stderr) -> None:
        self._ocean = ocean
        self._grace_ms = grace_ms
        self._begin = begin
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._is_hurried = False
        self.caught: list[int] = []

    @property
    def code(self) -> int:
        """The exit code of a server: 130 after Ctrl-C, otherwise 0."""
        return INTERRUPTED if signal.SIGINT in self.caught else 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Catch the signals while the block is running. Outside the main thread nothing is changed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.catch) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                # A process that is ending gets no second SIGTERM.
                is_ending = number is signal.SIGTERM and number in self.caught
                signal.signal(number, signal.SIG_IGN if is_ending else handler)

    def catch(self, number: int, frame: object = None) -> None:
        """Handle one signal, between any two instructions of the main thread."""
        self.caught.append(number)
        if len(self.caught) == 1:
            self._call(self._first)
        elif number == signal.SIGINT:
            if self._is_hurried:
                os._exit(INTERRUPTED)
            self._is_hurried = True
            self._call(self._ocean.shutdown.hurry)

    def _call(self, callback: Callable[[], object]) -> None:
        # The loop may have been closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _first(self) -> None:
        self._ocean.shutdown.begin()
        if ticks := self._ocean.shutdown.ticks():
            is_interrupt = self.caught[0] == signal.SIGINT
            self._write(waiting_line(ticks, self._grace_ms, is_interrupt=is_interrupt))
        self._begin()


async def until_stopped(ocean: Ocean, work: Awaitable[int | None]) -> int | None:
    """Do the work of a command and return its exit code. A signal stops the ticks that it calls, then the work."""
    working = asyncio.ensure_future(work)
    was_at_work, tasks = False, list[asyncio.Task[None]]()

    async def stop() -> None:
        await ocean.stop(STOP_GRACE_MS)
        await asyncio.wait([working], timeout=RETURN_S if was_at_work else 0)
        working.cancel()

    def begin() -> None:
        nonlocal was_at_work
        was_at_work = bool(ocean.shutdown.ticks())
        tasks.append(asyncio.create_task(stop()))

    signals = StopSignals(ocean, STOP_GRACE_MS, begin)
    with signals.installed():
        try:
            await asyncio.wait([working])
        finally:
            # Only if this task was cancelled.
            working.cancel()
    if tasks:
        await asyncio.wait(tasks)
    if not signals.caught:
        return working.result()
    if working.cancelled():
        return INTERRUPTED if signal.SIGINT in signals.caught else TERMINATED
    return signals.code or working.result()


def leave(ocean: Ocean, code: int) -> None:
    """End the process now if handlers that were stopped are still executing: Python would wait for them."""
    if ocean.still_executing:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
