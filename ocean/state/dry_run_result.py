"""The result of a dry run: the next call of one run, as if it were committed now."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ocean.state.counters import Take
from ocean.state.effects import Scope
from ocean.state.eligibility import Hold
from ocean.state.outcomes import Outcome
from ocean.state.records import Ending, Input, Key


@dataclass(frozen=True, slots=True)
class DryStop:
    """Where a dry run stopped: at a step without a stored result, a tool with an effect outside, or `hard_ms`."""

    kind: Literal["step", "tool", "limit"]
    name: str
    clog_id: str


@dataclass(frozen=True, slots=True)
class DryEvent:
    """An event that would be appended; if `is_streamed`, at once, whatever the outcome."""

    type: str
    payload: Any
    clog_id: str
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class DryRow:
    """One row as it is now and as it would be. An absent row is None; the flags distinguish it from a stored null."""

    scope: Scope
    clog_id: str
    before: Any
    after: Any
    is_new: bool
    is_cleared: bool
    session_id: str = ""
    run_id: str = ""
    tick: int = 0
    row_id: str = ""


@dataclass(frozen=True, slots=True)
class DrySignal:
    """A signal that the tick would send."""

    run_id: str
    input: Any
    signal_id: str | None = None
    deliver_at: int | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class DryNewRun:
    """A run that would be created, idle unless `has_input`."""

    run_id: str
    clog_id: str
    session_id: str
    input: Any
    has_input: bool
    priority: int
    attributes: Mapping[str, Any]
    deadline_at: int | None
    dedupe_key: str | None
    concurrency_keys: tuple[Key, ...]
    queue: str | None
    rate: Take | None
    """The run starts when a token of this rate is free."""
    notify_parent: bool
    on_parent_end: Literal["live", "cancel"]


@dataclass(frozen=True, slots=True)
class DryTimer:
    """A timer that would be set, or cancelled if `at` is None."""

    name: str
    at: int | None
    input: Any = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """What the next call of a run would get, and what it would commit. Nothing was written.

    With `holds` or `end` nothing was called: the run would not be claimed now, or the next `advance` would end it.
    With `stopped_at` there is no outcome, and the rest is what the handler had requested until then. If the outcome
    is `Retry`, only the streamed events would be kept.
    """

    run_id: str
    tick: int | None = None
    call: int | None = None
    attempt: int | None = None
    reason: str | None = None
    inputs: tuple[Input, ...] = ()
    outcome: Outcome | None = None
    events: tuple[DryEvent, ...] = ()
    rows: tuple[DryRow, ...] = ()
    signals: tuple[DrySignal, ...] = ()
    runs: tuple[DryNewRun, ...] = ()
    timers: tuple[DryTimer, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    takes: tuple[Take, ...] = ()
    deleted_runs: tuple[str, ...] = ()
    deleted_ticks: tuple[int, ...] = ()
    deletes_session: bool = False
    releases_dedupe_key: bool = False
    stopped_at: DryStop | None = None
    holds: tuple[Hold, ...] = ()
    end: Ending | None = None
