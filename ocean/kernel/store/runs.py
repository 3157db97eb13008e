"""The verbs around a run: clogs, creating, signalling, direct calls, counters, reading, ending and deleting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ocean.state.counters import Take, Taken
from ocean.state.effects import Effects, NewRun, NewSignal
from ocean.state.filters import RunFilter
from ocean.state.records import ClogRecord, Input, RunCount, RunInfo, RunPage, SignalReceipt, TickInfo


@dataclass(frozen=True, slots=True)
class Request:
    """A request key, and the hash of the request that was made under it."""

    key: str
    hash: str


@dataclass(frozen=True, slots=True)
class CallCommit:
    """The effects and the answer of a direct call. `run_id` is None for a call on a clog alone."""

    clog_id: str
    session_id: str | None
    run_id: str | None
    method: str
    effects: Effects
    answer: str
    actor: str | None
    request: Request | None


@dataclass(frozen=True, slots=True)
class CallDone:
    """The call is committed. If `is_repeated`, `answer` is the one stored under the request key earlier."""

    answer: str
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class CallConflict:
    """Nothing was committed: rows have changed since they were read, or the counters in `refused` are used up."""

    refused: Mapping[str, Taken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Behind:
    """Nothing was committed: another tick has a turn on one of the rows. Try again after the next commit."""


class StoreRuns(Protocol):
    """What callers do with runs."""

    async def register_clogs(self, clogs: Sequence[ClogRecord]) -> None:
        """Insert or update the clogs of an instance. The pause of a clog is kept."""

    async def list_clogs(self) -> list[ClogRecord]: ...

    async def set_clog_paused(
        self, clog_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> ClogRecord:
        """Pause or resume all runs of a clog. Refused for a clog that no instance has registered."""

    async def create_run(self, new: NewRun, request: Request | None) -> RunInfo:
        """Insert a run: pending with an input, idle without; a rate or a debounce delays its start.

        Returns the existing run if its id or its dedupe key was used with the same body; with another body it is
        refused. A debounced run that was not claimed yet is replaced instead. Refused also for an unknown clog, a
        deadline that has passed, and a queue of a clog that is not external.
        """

    async def retry_run(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        """Create the run that repeats a failed one (`state.retry_as_new`), or return it if it exists.

        Refused unless the run has failed and was created with an input.
        """

    async def find_run(self, clog_id: str, session_id: str, dedupe_key: str) -> tuple[str, str] | None:
        """Return the run that holds this dedupe key, and the hash of the body that created it."""

    async def deliver_signal(self, signal: NewSignal, request: Request | None) -> SignalReceipt:
        """Append an input to the run's inbox, and make an idle or waiting run pending if the input is due.

        Refused if the run does not exist, has ended or is ending; with `if_idle`, also unless it is idle. A signal id
        that the run had with the same body returns the first receipt; with another body it is refused.
        """

    async def commit_call(self, commit: CallCommit) -> CallDone | CallConflict | Behind:
        """Commit a direct call without the run's lock: row versions decide whether it may be committed."""

    async def stored_answer(self, request: Request) -> str | None:
        """Return the result stored under a request key, if any. Refused if the body differs."""

    async def keep_answer(self, request: Request, answer: str) -> str:
        """Store the result of something that is not one transaction. Returns the first one stored under the key."""

    async def look_at_counter(self, takes: Sequence[Take]) -> Taken:
        """Return the result that the last of these takes, all of one key, would have after the others. Only reads."""

    async def take(self, take: Take, request: Request | None) -> Taken:
        """Take from a counter. A refusal writes nothing, and is not stored under the request key."""

    async def reset_counter(self, key: str, request: Request | None) -> bool:
        """Delete a counter. Returns False if there was none."""

    async def get_run(self, run_id: str) -> RunInfo | None: ...

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        """Return the page after the cursor, in the filter's order. A cursor of another order is refused."""

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount:
        """Count the runs, at most up to `cap`."""

    async def list_ticks(self, run_id: str, after: int, limit: int) -> list[TickInfo]: ...

    async def list_inputs(self, run_id: str, after: int, limit: int) -> list[Input]: ...

    async def set_run_paused(self, run_id: str, is_paused: bool, actor: str | None, request: Request | None) -> RunInfo:
        """Pause or resume a run. Refused if it does not exist, has ended or is ending."""

    async def cancel_run(self, run_id: str, reason: str | None, actor: str | None, request: Request | None) -> RunInfo:
        """End a run as failed, code `cancelled`, at once or after the last tick of a clog with `on_end`.

        Refused if the run does not exist or has ended. A run that is ending already is returned unchanged.
        """

    async def retry_end(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        """Make the last tick due again of a run that has ended without it. Refused for any other run."""

    async def delete_run(self, run_id: str, actor: str | None, request: Request | None) -> int:
        """Delete a run, its children and all their rows, whatever their status. Returns the number of runs deleted.

        Their events stay. Refused if the run does not exist.
        """

    async def delete_session(self, session_id: str, actor: str | None, request: Request | None) -> int:
        """Delete all runs and rows of a session. Returns the number of runs deleted. Events stay."""
