"""The verbs of the log: appending while a tick runs, reading feeds, retention, and waiting for commits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ocean.state.effects import NewEvent
from ocean.state.filters import FeedFilter
from ocean.state.records import Event, Lock, SweepResult


@dataclass(frozen=True, slots=True)
class SweepAsk:
    """Cut-off times in milliseconds since 1970; None keeps that kind. Expired counters are always removed."""

    events_before: int | None
    runs_before: int | None
    requests_before: int | None
    batch: int


class StepStreamed(NamedTuple):
    """The event that is appended when a step that has streamed is stored: it confirms what this call streamed."""

    tick: int
    call: int
    event: NewEvent


class StoreEvents(Protocol):
    """The append-only log. Every other verb appends its events in its own transaction."""

    async def append_streamed(self, lock: Lock, tick: int, call: int, events: Sequence[NewEvent]) -> None:
        """Append events of a running tick at once. Refused (`LockLost`) unless the lock is still held."""

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]:
        """Return the events of a feed after a cursor, oldest first."""

    async def read_newest_events(self, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
        """Return the events of a feed from its end backwards, or backwards from below a cursor."""

    async def event_bounds(self) -> tuple[int, int]:
        """Return the highest cursor that retention has removed, and the highest cursor there is."""

    async def sweep(self, ask: SweepAsk) -> SweepResult:
        """Delete one bounded batch of each kind that is older than its cut-off."""

    def commits_seen(self) -> int:
        """Return a number that rises with every commit that this process has made or noticed."""

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        """Wait until `commits_seen` is above `seen`. Commits of other processes are looked for every `look_ms`."""
