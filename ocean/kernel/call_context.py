"""The stage of one call: what it was given, what it has read, and what it wants to change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import anyio

from ocean.clog.clog import Registry
from ocean.kernel.ledger import Ledger
from ocean.kernel.store import Store
from ocean.kernel.streaming import Outflow
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
    """A dry run has come to what only a real call may do. No `except Exception` of a handler's takes it."""


@dataclass(slots=True, eq=False)
class Scene:
    """Shared by a call and every nested call in it. A direct call has no lock and tick number 0."""

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
    is_dry: bool = False
    outflow: Outflow | None = None
    streamed: list[NewEvent] = field(default_factory=list)
    stopped_at: DryStop | None = None

    def check_alive(self) -> None:
        """Every tool asks first: a call that lost its run, or has ended, changes nothing any more."""
        if self.is_lost:
            raise LockLost(f"run {self.run.run_id if self.run else ''} was taken over; stop this call")
        if self.is_over:
            raise ClogError("this tick is over; tools work only while its handler runs")
        if self.stopped_at is not None:
            raise DryRunOver

    def stop(self, at: DryStop) -> NoReturn:
        """End a dry run. A handler that catches even this gets it again from its next tool."""
        self.stopped_at = at
        raise DryRunOver

    def one_at_a_time(self, what: str) -> anyio.Lock:
        """Most calls need none, and to make one for each would be a good part of what a call costs."""
        if what not in self.locks:
            self.locks[what] = anyio.Lock(fast_acquire=True)
        return self.locks[what]

    async def say(self, lock: Lock, event: NewEvent) -> None:
        if self.outflow is None:
            self.outflow = Outflow(partial(self.store.append_streamed, lock, self.tick, self.call))
        await self.outflow.say(event)

    async def settle(self) -> None:
        """Wait until what this call has streamed is stored."""
        if self.outflow is not None:
            await self.outflow.settle()

    def next_id(self) -> str:
        """Derived from the tick and an ordinal, so that every call of the tick hands out the same ids."""
        self.ordinal += 1
        return derived_id(self.seed, self.ordinal)

    def taken_of(self, key: str) -> list[Take]:
        """What this call has taken of a counter already, in nested calls too."""
        return [take for effects in (self.effects, *self.buffers) for take in effects.takes if take.key == key]

    def created_with_key(self, new: NewRun) -> tuple[str, str] | None:
        """The run that this call has already created under the same dedupe key, and its body's hash."""
        for earlier in (run for effects in (self.effects, *self.buffers) for run in effects.runs):
            key = (earlier.clog_id, earlier.session_id, earlier.dedupe_key)
            if key == (new.clog_id, new.session_id, new.dedupe_key):
                return earlier.run_id, earlier.body_hash
        return None
