"""The verbs of a tick: what is due, claiming and leasing it, its rows and steps, its commit, and concurrency keys."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ocean.kernel.store.events import StepStreamed
from ocean.kernel.store.runs import Behind, Request
from ocean.state.counters import Taken
from ocean.state.effects import Effects, RowKey, StoredRow
from ocean.state.eligibility import Hold, Surroundings
from ocean.state.outcomes import Outcome, Retry
from ocean.state.records import Agenda, Claim, Ending, Input, KeyInfo, Lock, Run, RunStatus


@dataclass(frozen=True, slots=True)
class ClaimableClog:
    """A clog whose runs may be claimed, and what a claim of one needs to know of it."""

    clog_id: str
    lock_ms: int
    version: str
    takes_all_inputs: bool


@dataclass(frozen=True, slots=True)
class ClaimAsk:
    """Claim at most `limit` due runs of these clogs, or the one run named.

    `slot` counts the claims of this instance: every eighth goes to the run that has been due longest, whatever its
    priority. A lease is a claim for an external worker, optionally only of the runs in some `queues`.
    """

    clogs: Mapping[str, ClaimableClog]
    instance_id: str
    limit: int
    slot: int = 0
    run_id: str | None = None
    queues: tuple[str, ...] = ()
    is_lease: bool = False
    piggyback: bool = False
    """Claim only as part of a transaction that is made anyway."""


@dataclass(frozen=True, slots=True)
class NotClaimable:
    """Why a run would not be called now: an end that is due, or the conditions that hold it."""

    end: Ending | None = None
    holds: tuple[Hold, ...] = ()


class ClaimOrder(Protocol):
    """A claim that is executed by the next transaction that makes a run due."""

    async def withdraw(self) -> None:
        """Cancel the order. Nothing is claimed by it afterwards; a claim in flight is reported first.

        The wait itself cannot be cancelled, so that no claim is lost.
        """


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
    """The end of leased work. `row` replaces version `row_version`, by default the one that was leased."""

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


class Renewal(NamedTuple):
    """What became of the locks that were to be renewed. Those of runs that are ending are renewed; their calls must
    stop once a step in flight has finished."""

    lost: set[Lock]
    ending: set[Lock]


class RowsAsk(NamedTuple):
    """One read: exact rows, run rows by dedupe key, whole earlier ticks, and the rows of the newest `history` ticks."""

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
    """`status` is None if the tick deleted its own run. A tick with too many conflicts is retried `instead`.

    `next_ms` is the back-off after a failed attempt, for the log.
    """

    status: RunStatus | None
    instead: Retry | None = None
    next_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Contended:
    """Nothing was committed: rows have changed, or counters are `refused`. The tick is called again as this call."""

    call: int
    must_take_turn: bool
    refused: Mapping[str, Taken] = field(default_factory=dict)


TickAnswer = Committed | Contended | Behind


class StoreClaims(Protocol):
    """What the loop and external workers do with runs that are due."""

    async def agenda(self, clog_ids: Collection[str]) -> Agenda:
        """Return what is due for these clogs, and when the next run will be."""

    async def survey(self, run_id: str, clog_ids: Collection[str]) -> tuple[Run, Surroundings] | None:
        """Return, from one snapshot, what `explain` judges: the run, and the facts that a claim would consider."""

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        """Lock due runs and fix the inputs of their ticks.

        Eligible is a run that `eligibility.holds` has no condition against: its clog is in the request and not
        paused, the run is not paused, it is due, it is unlocked or its lock has expired, and each of its concurrency
        keys has a free slot. A run with a full key is parked instead. The same transaction ends the runs that
        `eligibility.kernel_end` names and takes back expired leases. If nothing is due, the verb only reads.
        """

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> ClaimOrder | None:
        """Let the next transaction of this process that makes a run due claim it as well.

        `claimed` is called once, on the event loop, before the caller of that transaction resumes. Returns None if
        the store does not support it.
        """

    async def preview_claim(self, ask: ClaimAsk) -> Claim | NotClaimable:
        """Return what `claim_due` would for the one run named, from one snapshot. Nothing is written.

        No claim has the epoch of the returned lock.
        """

    def renew_locks(self, locks: Sequence[Lock]) -> Renewal:
        """Extend all locks in one transaction. Callable from any thread; blocks."""

    async def call_apart(self, locks: Sequence[Lock]) -> set[Lock]:
        """Note that these suspects are called now, and no other run of this process. Returns the lost locks."""

    async def give_back(self, lock: Lock, tick: int, *, counts: bool = True) -> RunStatus | None:
        """Unlock a run whose call was stopped. Returns None if the lock was lost before.

        With `counts`, the third time in a tick and each later one is a failed attempt. Without it none is: the process
        was stopped, which is not the fault of the run. If the run is ending, its last tick is due then, and nothing is
        counted.
        """

    async def read_rows(self, ask: RowsAsk) -> RowsAnswer: ...

    async def due_inputs(self, run_id: str, limit: int) -> list[Input]:
        """Return the inputs that are due and not assigned to a tick, in the order in which ticks will get them."""

    async def read_step(self, run_id: str, tick: int, name: str) -> str | None:
        """Return a stored step result. `tick` 0 means the steps of the run."""

    async def store_step(
        self, lock: Lock, tick: int, name: str, result: str, streamed: StepStreamed | None = None
    ) -> str:
        """Store a step result and return it, or the one stored before. Refused unless the lock is still held.

        Accepted from a call whose run is ending, as are streamed events, until its grace time is over. `streamed` is
        appended to the log in the same transaction, unless another result was stored before.
        """

    async def take_turn(self, lock: Lock, keys: Sequence[RowKey]) -> bool:
        """Reserve contested rows for the tick's next call. Returns False while another tick has one of them."""

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        """Check the lock's epoch and the row versions, write everything, and set the run's next status.

        Refused (`LockLost`) if the epoch is not the run's. A commit that is sent again returns the first result.
        """

    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        """Claim for an external worker, by the rules of `claim_due`. Refused unless the clog is known and external."""

    async def renew_lease(
        self, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]], request: Request | None
    ) -> int:
        """Extend a lease that is still held and append its worker's events. Returns when it expires now."""

    async def release_lease(self, lease_hash: str, request: Request | None) -> RunStatus:
        """Unlock a run whose worker stops before it is done, as `give_back` does."""

    async def complete_lease(self, completion: LeaseCompletion) -> LeaseDone | Behind:
        """Commit the leased tick under its epoch.

        The same completion again returns the first result, another one is refused. Refused also if the lease was lost
        or the run's row has another version.
        """

    async def set_limit(self, key: str, limit: int, actor: str | None, request: Request | None) -> KeyInfo:
        """Set how many runs may hold a concurrency key at once. Parked runs that now have a slot become due."""

    async def get_key(self, key: str) -> KeyInfo: ...

    async def list_keys(self, after: str, limit: int) -> list[KeyInfo]: ...
