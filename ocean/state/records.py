"""The records: runs, inputs, ticks, events and results, as stored and as callers see them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ocean.state.backoff import RetryPolicy

if TYPE_CHECKING:
    from ocean.state.dry_run_result import DryRun

END_RETRY = RetryPolicy(max_attempts=10)
"""The default of `Clog(end_retry=…)`: up to a minute between attempts."""
CANCEL_GRACE_MS = 10_000
"""The default of `cancel_grace_ms`."""


class RunStatus(StrEnum):
    """The six statuses of a run; `done` and `failed` are final."""

    IDLE = "idle"
    PENDING = "pending"
    ACTIVE = "active"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


ENDED = frozenset({RunStatus.DONE, RunStatus.FAILED})


class Ending(StrEnum):
    """Why the kernel ends a run; also the reason of the last tick of a clog with `on_end`."""

    CANCEL = "cancel"
    DEADLINE = "deadline"
    EXHAUSTED = "exhausted"


class InputKind(StrEnum):
    """Where an input came from; it becomes the tick's reason."""

    CREATED = "created"
    CONTINUE = "continue"
    SIGNAL = "signal"
    TIMER = "timer"
    CHILD = "child"


@dataclass(frozen=True, slots=True)
class Key:
    """A concurrency key of a run: held during each tick, or with `hold="run"` from its first tick to its end."""

    name: str
    hold: Literal["tick", "run"] = "tick"


DEFAULT_QUEUE = "default"


class Delay(StrEnum):
    """Why a run does not start when it is created."""

    RATE = "rate"
    DEBOUNCE = "debounce"


WAKE = "wake"
"""The reason of a tick that has no input: `Wait` ran out."""


class Run(NamedTuple):
    """The state of a run: the columns that decide what may happen to it.

    The functions of `transitions` return the next one; PostgreSQL has them in plpgsql. A tuple, because a tick
    replaces it some twenty times, and nothing is copied faster.

    `life` is 0, or, if the run id may have been used before, a number that no earlier use had. `parked_on` is the full
    concurrency key that the run waits for; `parked_at` keeps its place in line until it is claimed. `queue` is where
    workers find a run of an external clog; `leased` means that one has it. `delay_key` is the rate key or dedupe key
    by which the run is `delayed_by` something until `wake_at`, or until it is claimed after that.

    `end_attempt` counts the failed calls of the last tick, of at most `end_max_attempts`; `end_incomplete` means that
    they were all used up. `stop_by` is until when the call in progress may still store a step, although the run is
    ending. `crash_company` and `crash_epoch` are explained in `suspects`.
    """

    run_id: str
    session_id: str
    clog_id: str
    parent_run_id: str | None
    correlation_id: str
    priority: int
    status: RunStatus
    attempt: int
    max_attempts: int | None
    ready_at: int | None
    wake_at: int | None
    deadline_at: int | None
    locked_by: str | None
    lock_expires_at: int | None
    lock_epoch: int
    tick: int
    tick_open: bool
    paused: bool
    ending: Ending | None
    event_count: int
    inbox_count: int
    pending_count: int
    created_at: int
    updated_at: int
    ended_at: int | None
    wait_until: int | None = None
    life: int = 0
    key_count: int = 0
    parked_on: str | None = None
    parked_at: int | None = None
    queue: str | None = None
    leased: bool = False
    delayed_by: Delay | None = None
    delay_key: str | None = None
    end_attempt: int = 0
    end_max_attempts: int | None = None
    end_incomplete: bool = False
    stop_by: int | None = None
    crash_company: int | None = None
    crash_epoch: int | None = None

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED


_PLACES = {name: place for place, name in enumerate(Run._fields)}


def changed(run: Run, **fields: Any) -> Run:
    """Return the run with some fields changed. Like `_replace`, which checks every field and takes thrice as long."""
    values = list(run)
    for name, value in fields.items():
        values[_PLACES[name]] = value
    return tuple.__new__(Run, values)


_EVENT_COUNT = _PLACES["event_count"]


def with_event(run: Run) -> Run:
    """Return the run with one more event: the most frequent change."""
    values: list[Any] = [*run]
    values[_EVENT_COUNT] += 1
    return tuple.__new__(Run, values)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run as callers see it. `error` is that of the last failure, until the run makes progress again."""

    run_id: str
    session_id: str
    clog_id: str
    status: RunStatus
    attempt: int
    max_attempts: int | None
    priority: int
    tick: int
    pending_count: int
    paused: bool
    ending: Ending | None
    wake_at: int | None
    due_at: int | None
    deadline_at: int | None
    locked_by: str | None
    lock_expires_at: int | None
    output: Any
    error: dict[str, Any] | None
    attributes: dict[str, Any]
    parent_run_id: str | None
    correlation_id: str
    dedupe_key: str | None
    created_at: int
    updated_at: int
    ended_at: int | None
    concurrency_keys: tuple[Key, ...] = ()
    parked_on: str | None = None
    queue: str | None = None
    retry_of: str | None = None
    """The failed run that this run repeats."""
    end_attempt: int = 0
    """The failed calls of the last tick."""
    end_incomplete: bool = False
    """Whether the run ended without its last tick, because the attempts of that were used up: see `retry_end`."""

    @property
    def is_ended(self) -> bool:
        """Whether the run is done or failed."""
        return self.status in ENDED

    def is_settled(self, now: int) -> bool:
        """Return whether nothing of it is due: it has ended, or waits for a signal or a later time."""
        is_at_rest = self.is_ended or self.status in (RunStatus.IDLE, RunStatus.WAITING)
        return is_at_rest and (self.due_at is None or self.due_at > now)


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child run, as its parent gets it."""

    run_id: str
    status: RunStatus
    output: Any
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a run's inbox. `caused_by` is the event that recorded its arrival."""

    number: int
    kind: InputKind
    body: Any
    available_at: int
    signal_id: str | None = None
    timer: str | None = None
    actor: str | None = None
    caused_by: str | None = None
    consumed_tick: int | None = None


class Lock(NamedTuple):
    """The right to write a run's tick. Once the run has a higher epoch, every write under this one is refused."""

    run_id: str
    epoch: int
    lock_ms: int


class Claim(NamedTuple):
    """One call to make: the run, its lock, and the tick's fixed number and inputs."""

    run: RunInfo
    lock: Lock
    tick: int
    call: int
    reason: str
    inputs: tuple[Input, ...]
    claimed_at: int
    lock_expires_at: int
    life: int = 0
    crash_company: int | None = None
    """With how many runs it was at work in a process that crashed, if that made it a suspect."""

    @property
    def run_key(self) -> str:
        """The run's id, distinct from earlier uses of it: the prefix of idempotency keys."""
        return f"{self.run.run_id}~{self.life}" if self.life else self.run.run_id


@dataclass(frozen=True, slots=True)
class TickInfo:
    """A tick as `list_ticks` returns it; `outcome` is None while it is open, and if the run ended first."""

    run_id: str
    tick: int
    reason: str
    outcome: str | None
    calls: int
    conflicts: int
    give_backs: int
    epoch: int
    instance_id: str
    version: str
    first_claimed_at: int
    claimed_at: int
    committed_at: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the append-only log. `seq` is the feed cursor; `run_seq` has no gaps within the run."""

    seq: int
    ts: int
    type: str
    payload: Any
    session_id: str | None = None
    run_id: str | None = None
    run_seq: int | None = None
    tick: int | None = None
    call: int | None = None
    clog_id: str | None = None
    actor: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    step: str | None = None
    """The step whose function streamed this event: a name that is unique in the run. See `StreamReader`."""

    @property
    def id(self) -> str:
        """The same whenever it is read or delivered again: derived, not stored."""
        return event_id(self.run_id, self.run_seq) if self.run_id else f"seq:{self.seq}"


def event_id(run_id: str, run_seq: int | None) -> str:
    return f"{run_id}:{run_seq}"


class LastTick(NamedTuple):
    """The last tick of a run that the kernel ends: its attempts, and the time for a step in flight to finish first."""

    max_attempts: int | None
    grace_ms: int


GenericVerb = Literal["create", "signal", "call", "cancel", "pause", "retry", "delete", "work"]
"""What the generic routes and commands can do with runs, apart from reading and advancing them."""

GENERIC_VERBS: tuple[GenericVerb, ...] = get_args(GenericVerb)


@dataclass(frozen=True, slots=True)
class ClogRecord:
    """What an instance registers about a clog, so that other instances can end its runs."""

    clog_id: str
    version: str
    has_on_end: bool
    paused: bool = False
    has_handler: bool = True
    external: bool = False
    takes_all_inputs: bool = False
    allows: tuple[str, ...] = GENERIC_VERBS
    """What the generic routes and commands may do with its runs, apart from reading and advancing them."""
    end_retry: RetryPolicy = END_RETRY
    """The attempts and delays of the last tick of a run that the kernel ends."""
    cancel_grace_ms: int = CANCEL_GRACE_MS
    """How long a step in flight may go on when its run is to end."""

    @property
    def last_tick(self) -> LastTick | None:
        """What a run of this clog gets before the kernel ends it; None if there is no `on_end`."""
        return LastTick(self.end_retry.max_attempts, self.cancel_grace_ms) if self.has_on_end else None


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A concurrency key: its limit, how many runs hold it, and how many are parked (counted up to 1,000)."""

    key: str
    limit: int
    in_use: int
    parked: int


@dataclass(frozen=True, slots=True)
class Caller:
    """The actor of a direct call, or of the signal that is a tick's input."""

    actor: str | None = None
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignalReceipt:
    """The result of `signal`: the input's number, the run's status then, and the `seq` of the event."""

    run_id: str
    number: int
    status: RunStatus
    seq: int


@dataclass(frozen=True, slots=True)
class TickResult:
    """One call that `advance` made. `outcome` is `ok`, `done`, …, or `lock_lost`, `given_back`."""

    run_id: str
    tick: int
    outcome: str
    status: RunStatus | None


@dataclass(frozen=True, slots=True)
class Agenda:
    """What is due for the clogs of one instance. `due_now` and `unclaimable` are counted up to 1,000."""

    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    unclaimable: int


@dataclass(frozen=True, slots=True)
class AdvanceResult:
    """What a poke did, and when the next one is needed; for a dry run, what it would have done."""

    outcomes: tuple[TickResult, ...]
    due_now: int
    next_wake_at: int | None
    oldest_due_age_ms: int
    unclaimable: int
    dry_run: "DryRun | None" = None

    @property
    def advanced(self) -> int:
        """Calls whose outcome was committed."""
        return sum(1 for result in self.outcomes if result.outcome not in ("lock_lost", "given_back"))


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs; `next_cursor` is None on the last page."""

    runs: tuple[RunInfo, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class RunCount:
    """A number of runs; if `is_capped`, at least this many."""

    count: int
    is_capped: bool


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep removed; `more` means that old rows are left after the last batch."""

    events: int = 0
    runs: int = 0
    requests: int = 0
    more: bool = False
    counters: int = 0


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A database as seen before it is opened. `schema` is None if there is none; `trouble` is why it cannot be read."""

    engine: str
    engine_version: str
    is_engine_new_enough: bool
    place: str
    newest_schema: int
    schema: int | None = None
    journal_mode: str | None = None
    trouble: str | None = None


KeyScope = Literal["read", "signal", "advance", "work", "admin"]
"""What a key allows. `admin` allows everything."""

KEY_SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)


@dataclass(frozen=True, slots=True)
class Access:
    """What a request may do: what its key allows, or everything if there are no keys. `sessions=None` means all."""

    scopes: frozenset[KeyScope]
    actor: str | None = None
    roles: tuple[str, ...] = ()
    sessions: frozenset[str] | None = None
    key_id: str | None = None

    @property
    def caller(self) -> Caller:
        """The caller as methods see it."""
        return Caller(self.actor, self.roles)

    def may(self, scope: KeyScope) -> bool:
        """Return whether the scope is allowed; `admin` allows all."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, session_id: str) -> bool:
        """Return whether the session is visible."""
        return self.sessions is None or session_id in self.sessions


EVERYTHING = Access(frozenset(KEY_SCOPES))
"""The access of a process that opens the database itself, and of HTTP requests while there are no keys."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The stored facts of a key, without its secret. `sessions=None` means all."""

    key_id: str
    actor: str
    scopes: tuple[KeyScope, ...]
    roles: tuple[str, ...]
    sessions: tuple[str, ...] | None
    created_at: int = 0
    expires_at: int | None = None
    revoked_at: int | None = None

    def access(self) -> Access:
        """Return what a request with this key may do."""
        sessions = None if self.sessions is None else frozenset(self.sessions)
        return Access(frozenset(self.scopes), self.actor, self.roles, sessions, self.key_id)


@dataclass(frozen=True, slots=True)
class RunOwner:
    """The session and clog of a run, and what the clog allows the generic routes and commands."""

    run_id: str
    session_id: str
    clog_id: str
    allows: tuple[str, ...]
