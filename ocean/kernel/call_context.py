"""The context of one call: what it was given, what it has read, and what it wants to change."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import anyio

from ocean.clog.clog import Registry
from ocean.kernel.rows import Ledger
from ocean.kernel.store import Store
from ocean.kernel.streaming import StreamBuffer
from ocean.state.clock import Clock
from ocean.state.counters import Take, Taken
from ocean.state.dry_run_result import DryStop
from ocean.state.effects import Effects, NewEvent, NewRun
from ocean.state.errors import ClogError, LockLost
from ocean.state.ids import derived_id
from ocean.state.records import Caller, Input, Lock, RunInfo
from ocean.tools.outside import Reach

MOST_DEPTH = 16


class DryRunOver(BaseException):
    """A dry run has reached what only a real call may do. No `except Exception` in a handler catches it."""


@dataclass(slots=True, eq=False)
class CallContext:
    """Shared by a call and all calls nested in it. A direct call has no lock, and tick number 0."""

    store: Store
    registry: Registry
    clock: Clock
    run: RunInfo | None
    session_id: str
    seed: str
    reason: str
    now: int
    deadline: int
    caller: Caller
    reach: Reach
    lock: Lock | None = None
    tick: int = 0
    call: int = 1
    inputs: tuple[Input, ...] = ()
    run_key: str = ""
    refused: Mapping[str, Taken] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)
    ledger: Ledger = field(default_factory=Ledger)
    locks: dict[str, anyio.Lock] = field(default_factory=dict)
    buffers: list[Effects] = field(default_factory=list)
    steps: set[tuple[str, str]] = field(default_factory=set)
    ordinal: int = 0
    is_lost: bool = False
    is_over: bool = False
    is_ending: bool = False
    steps_in_flight: int = 0
    steps_are_over: anyio.Event | None = None
    stop_call: Callable[[], None] | None = None
    is_dry: bool = False
    stream_buffer: StreamBuffer | None = None
    streamed: list[NewEvent] = field(default_factory=list)
    stopped_at: DryStop | None = None
    failed_step: tuple[str, str] | None = None

    def check_alive(self) -> None:
        """Refuse the use of a tool by a call that has lost its lock or has ended. Every tool checks this first."""
        if self.is_lost:
            raise LockLost(f"run {self.run.run_id if self.run else ''} was taken over; stop this call")
        if self.is_over:
            raise ClogError("this tick is over; tools work only while its handler runs")
        if self.stopped_at is not None:
            raise DryRunOver

    def end(self) -> None:
        """The run is ending: stop this call, or let the steps in flight finish and then stop it."""
        self.is_ending = True
        if self.steps_in_flight == 0 and self.stop_call is not None:
            self.stop_call()

    async def step_is_over(self) -> None:
        """A step has finished. If the run is ending, wait for the other steps in flight, and go no further."""
        self.steps_in_flight -= 1
        if not self.is_ending:
            return
        if self.steps_are_over is None:
            self.steps_are_over = anyio.Event()
        if self.steps_in_flight == 0:
            self.steps_are_over.set()
            self.end()
        await self.steps_are_over.wait()
        self.refuse_if_ending()

    def refuse_if_ending(self) -> None:
        """Refuse to begin a step if the run is ending."""
        if self.is_ending and self.run is not None:
            raise LockLost(f"run {self.run.run_id} is ending; begin no further step")

    def stop(self, at: DryStop) -> NoReturn:
        """End a dry run. If the handler catches the exception, its next tool raises it again."""
        self.stopped_at = at
        raise DryRunOver

    def lock_for(self, what: str) -> anyio.Lock:
        """Return a lock, created when first used: most calls need none, and creating one is costly."""
        if what not in self.locks:
            self.locks[what] = anyio.Lock(fast_acquire=True)
        return self.locks[what]

    async def stream(self, lock: Lock, event: NewEvent) -> None:
        """Append an event to the log at once."""
        if self.stream_buffer is None:
            self.stream_buffer = StreamBuffer(partial(self.store.append_streamed, lock, self.tick, self.call))
        await self.stream_buffer.append(event)

    async def flush(self) -> None:
        """Wait until everything that this call has streamed is stored."""
        if self.stream_buffer is not None:
            await self.stream_buffer.flush()

    def next_id(self) -> str:
        """Return an id derived from the tick and an ordinal, so that every call of the tick gets the same ids."""
        self.ordinal += 1
        return derived_id(self.seed, self.ordinal)

    def takes_of(self, key: str) -> list[Take]:
        """Return what this call and its nested calls have taken of a counter so far."""
        return [take for effects in (self.effects, *self.buffers) for take in effects.takes if take.key == key]

    def created_with_key(self, new: NewRun) -> tuple[str, str] | None:
        """Return the run that this call has created under the same dedupe key, and the hash of its body."""
        for earlier in (run for effects in (self.effects, *self.buffers) for run in effects.runs):
            key = (earlier.clog_id, earlier.session_id, earlier.dedupe_key)
            if key == (new.clog_id, new.session_id, new.dedupe_key):
                return earlier.run_id, earlier.body_hash
        return None
