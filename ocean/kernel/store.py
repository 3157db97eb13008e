"""What the kernel asks of a database: verbs, one transaction each.

A store decides nothing by itself. It reads the row, asks `transitions` and `eligibility` inside the transaction
what follows, and writes that. It may group the transactions of concurrent callers; the effect of a group equals its
items one after another, and an item that is refused leaves no trace of itself.

Expected refusals come back as answers or as `OceanError`s with nothing written.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ocean.kernel.metrics import Histogram
from ocean.state.access import ApiKey, Standing
from ocean.state.clock import Clock
from ocean.state.counters import Take, Taken
from ocean.state.effects import Effects, NewEvent, NewRun, NewSignal, RowKey, StoredRow
from ocean.state.eligibility import Hold, Surroundings
from ocean.state.filters import FeedFilter, RunFilter
from ocean.state.outcomes import Outcome, Retry
from ocean.state.records import (
    Agenda,
    Claim,
    ClogRecord,
    Ending,
    Event,
    Input,
    KeyInfo,
    Lock,
    Run,
    RunCount,
    RunInfo,
    RunPage,
    RunStatus,
    SignalReceipt,
    SweepResult,
    TickInfo,
)


class RowsAsk(NamedTuple):
    """One read: exact rows, run rows by dedupe key, whole earlier ticks, and the newest `history` ticks' rows."""

    clog_id: str
    session_id: str
    run_id: str
    keys: tuple[RowKey, ...] = ()
    dedupe_keys: tuple[str, ...] = ()
    ticks: tuple[int, ...] = ()
    history: int = 0


class RowsAnswer(NamedTuple):
    rows: Mapping[RowKey, StoredRow]
    run_by_dedupe_key: Mapping[str, str | None]
    history: Sequence[tuple[int, Mapping[str, str]]]


class TickCommit(NamedTuple):
    """The end of one call: its outcome and, unless that is `Retry`, its effects."""

    lock: Lock
    clog_id: str
    tick: int
    call: int
    outcome: Outcome
    effects: Effects
    instance_id: str
    version: str
    claimed_at: int


@dataclass(frozen=True, slots=True)
class Committed:
    """`status` is None when the tick deleted its own run. A tick that lost its rows too often is retried `instead`."""

    status: RunStatus | None
    instead: Retry | None = None


@dataclass(frozen=True, slots=True)
class Contended:
    """Rows had moved on, or counters are `refused`: nothing was committed, the tick is called again as this call."""

    call: int
    must_take_turn: bool
    refused: Mapping[str, Taken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Behind:
    """Another tick has its turn on a row this one writes: nothing happened, ask again after a commit."""


TickAnswer = Committed | Contended | Behind


@dataclass(frozen=True, slots=True)
class Request:
    """An idempotency key: with the same hash the first answer comes back, with another it is refused."""

    key: str
    hash: str


@dataclass(frozen=True, slots=True)
class CallCommit:
    """A direct call's effects. `run_id` is None for a call on a clog alone."""

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
    """`answer` is the stored one if the request key had been used before: then it `is_repeated`."""

    answer: str
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class CallConflict:
    """Rows had moved on, or counters are `refused`: nothing was committed."""

    refused: Mapping[str, Taken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimableClog:
    clog_id: str
    lock_ms: int
    version: str
    takes_all_inputs: bool


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """Claim at most `limit` due runs of these clogs, or the one run named.

    `slot` counts this instance's claims: every eighth goes to the longest due run of any priority. A lease is a
    claim for a worker outside, perhaps only of the runs in some `queues`.
    """

    clogs: Mapping[str, ClaimableClog]
    instance_id: str
    limit: int
    slot: int = 0
    run_id: str | None = None
    queues: tuple[str, ...] = ()
    is_lease: bool = False
    is_along: bool = False
    """Only in a transaction that is about to be made anyway."""


@dataclass(frozen=True, slots=True)
class LeaseAsk:
    """Lease due runs of an external clog to a worker, one for each of the `hashes` of new lease ids."""

    clog_id: str
    worker_id: str
    lease_ms: int
    queues: tuple[str, ...]
    hashes: tuple[str, ...]
    slot: int


@dataclass(frozen=True, slots=True)
class LeasedRun:
    claim: Claim
    row: StoredRow


@dataclass(frozen=True, slots=True)
class LeaseCompletion:
    """The end of leased work. `row` replaces the version `row_version`, or the one that was leased, and no other."""

    lease_hash: str
    outcome: Outcome
    events: tuple[tuple[str, str], ...]
    writes_row: bool
    row: str | None
    row_version: int | None
    body_hash: str


@dataclass(frozen=True, slots=True)
class LeaseDone:
    run_id: str
    tick: int
    status: RunStatus | None


@dataclass(frozen=True, slots=True)
class NotClaimable:
    """Why a run would not be called now: an end that any `advance` owes it, or what holds it."""

    end: Ending | None = None
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepAsk:
    """Cut-off times in ms since 1970; None leaves that kind alone. Counters that are worth nothing go in any case."""

    events_before: int | None
    runs_before: int | None
    requests_before: int | None
    batch: int


class ClaimOrder(Protocol):
    """A claim that stands ready for whoever makes something due."""

    async def withdraw(self) -> None:
        """Nothing is claimed by it after this. It cannot be cancelled: nothing claimed is forgotten."""


class Store(Protocol):
    @property
    def clock(self) -> Clock:
        """By which the times in this store are to be read: on a server's database, the server's."""

    @property
    def batch_sizes(self) -> Histogram:
        """How many of the verbs below shared each transaction. Only grows."""

    async def add_api_key(self, key: ApiKey, hash: str) -> ApiKey:
        """Keep a new key; answers it with the time."""

    async def list_api_keys(self, after: str, limit: int) -> list[ApiKey]: ...

    async def has_api_keys(self) -> bool: ...

    async def find_api_key(self, key_id: str) -> tuple[ApiKey, str] | None:
        """A key with its hash, unless it is revoked or expired."""

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        """Revoke it, and end its web sessions; None if there is no such key."""

    async def add_web_session(self, hash: str, key_id: str, for_ms: int) -> int:
        """Keep a web session; answers when it ends. Those that have ended are forgotten."""

    async def find_web_session(self, hash: str) -> ApiKey | None:
        """The key of a web session, if neither has ended."""

    async def end_web_session(self, hash: str) -> bool: ...

    async def standing(self, run_id: str) -> Standing | None: ...

    async def standing_of_lease(self, lease_hash: str) -> Standing | None: ...

    async def register_clogs(self, clogs: Sequence[ClogRecord]) -> None:
        """Write down which clogs exist, with their version; a clog's pause survives it."""

    async def list_clogs(self) -> list[ClogRecord]: ...

    async def create_run(self, new: NewRun, request: Request | None) -> RunInfo:
        """Insert a run, or answer the first one for a repeated id, dedupe key or request key."""

    async def retry_run(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        """Create the run that repeats a failed one (`retrying.retried`), or answer the one that did."""

    async def find_run(self, clog_id: str, session_id: str, dedupe_key: str) -> tuple[str, str] | None:
        """The run that holds this dedupe key and the hash of the body that created it."""

    async def deliver_signal(self, signal: NewSignal, request: Request | None) -> SignalReceipt:
        """Append to the inbox and make an idle or waiting run pending; refused for ended and unknown runs."""

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> ClaimOrder | None:
        """Have the next transaction of this process that makes something due claim it, too. None: not here.

        `claimed` is told of it once, on the event loop, before anybody else hears of that transaction.
        """

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        """Lock due runs and fix their ticks' inputs.

        Eligible is what `eligibility.holds` has nothing against: of a clog in the ask, not paused, due, and
        either unlocked or with a lapsed lock, and with a free slot of each of its concurrency keys; a run that finds
        one full is parked. The same transaction does what any `advance` owes: ends (`eligibility.kernel_end`), and
        taking back leases that lapsed. Without anything due it only reads.
        """

    async def preview_claim(self, ask: ClaimAsk) -> Claim | NotClaimable:
        """What `claim_due` would answer for the one run named, from one snapshot; nothing is written.

        The lock in it is nobody's: the database knows no such epoch yet.
        """

    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        """Claim for a worker outside, by the same rules; refused for clogs that are unknown or not external."""

    async def renew_lease(
        self, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]], request: Request | None
    ) -> int:
        """Extend a lease that still holds, append what its worker says, and answer when it lapses now."""

    async def release_lease(self, lease_hash: str, request: Request | None) -> RunStatus:
        """Unlock a run whose worker stops before it is done, as `give_back` does."""

    async def complete_lease(self, completion: LeaseCompletion) -> LeaseDone | Behind:
        """Commit the leased tick under the fence. Repeated, it gets the first answer; late, it is refused."""

    async def read_rows(self, ask: RowsAsk) -> RowsAnswer: ...

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        """Fence, compare versions, write everything, settle the run. Repeating a commit that stood answers the same."""

    async def take_turn(self, lock: Lock, keys: Sequence[RowKey]) -> bool:
        """Reserve contested rows for this tick's next call; False while another holds one of them."""

    async def give_back(self, lock: Lock, tick: int) -> RunStatus | None:
        """Unlock a run whose call was stopped; None if the lock was lost already."""

    def renew_locks(self, locks: Sequence[Lock]) -> set[Lock]:
        """Extend all of them in one transaction and answer the lost ones. Callable from any thread; blocks."""

    async def append_streamed(self, lock: Lock, tick: int, call: int, events: Sequence[NewEvent]) -> None: ...

    async def read_step(self, run_id: str, tick: int, name: str) -> str | None:
        """A stored step result. `tick` 0 means the run's own steps."""

    async def store_step(self, lock: Lock, tick: int, name: str, result: str) -> str:
        """Remember a step's result, under the fence; if one was stored already, that one is answered."""

    async def commit_call(self, commit: CallCommit) -> CallDone | CallConflict | Behind: ...

    async def look_at_counter(self, takes: Sequence[Take]) -> Taken:
        """What the last of these takes, all of one key, would be answered now after the others. Only reads."""

    async def take(self, take: Take, request: Request | None) -> Taken:
        """Take from a counter. A refusal writes nothing, and is not kept for the request key."""

    async def reset_counter(self, key: str, request: Request | None) -> bool:
        """Forget a counter; False if there was none."""

    async def stored_answer(self, request: Request) -> str | None:
        """The answer kept for a request key, or None; refused if the body differs."""

    async def keep_answer(self, request: Request, answer: str) -> str:
        """Keep the answer of something that is not one transaction; the first one stays, and is answered."""

    async def get_run(self, run_id: str) -> RunInfo | None: ...

    async def survey(self, run_id: str, clog_ids: Collection[str]) -> tuple[Run, Surroundings] | None:
        """What `explain` judges, from one snapshot: the row, and what else a claimer with these clogs goes by."""

    async def set_limit(self, key: str, limit: int, actor: str | None, request: Request | None) -> KeyInfo:
        """How many runs may hold a concurrency key at once. Parked runs that now have room become due."""

    async def get_key(self, key: str) -> KeyInfo: ...

    async def list_keys(self, after: str, limit: int) -> list[KeyInfo]: ...

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        """A page after the cursor, in the filter's order. A cursor that another order made is refused."""

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount: ...

    async def list_ticks(self, run_id: str, after: int, limit: int) -> list[TickInfo]: ...

    async def list_inputs(self, run_id: str, after: int, limit: int) -> list[Input]: ...

    async def due_inputs(self, run_id: str, limit: int) -> list[Input]:
        """What is due in the inbox and no tick's yet, in the order in which ticks will get it."""

    async def agenda(self, clog_ids: Collection[str]) -> Agenda: ...

    async def cancel_run(
        self, run_id: str, reason: str | None, actor: str | None, request: Request | None
    ) -> RunInfo: ...

    async def set_run_paused(
        self, run_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> RunInfo: ...

    async def set_clog_paused(
        self, clog_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> ClogRecord: ...

    async def delete_run(self, run_id: str, actor: str | None, request: Request | None) -> int:
        """Remove a run and its children; answers how many runs went. Their events stay."""

    async def delete_session(self, session_id: str, actor: str | None, request: Request | None) -> int: ...

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]: ...

    async def read_newest_events(self, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
        """From the end of the log backwards, or from below a cursor."""

    async def event_bounds(self) -> tuple[int, int]:
        """The highest cursor that retention has removed, and the highest there is."""

    async def sweep(self, ask: SweepAsk) -> SweepResult:
        """Remove one bounded batch of each kind that is older than its cut-off."""

    def commits_seen(self) -> int:
        """A number that rises with every commit this process has made or noticed."""

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        """Wait until `commits_seen` is above `seen`. Other processes' commits are looked for every `look_ms`."""

    async def close(self) -> None: ...
