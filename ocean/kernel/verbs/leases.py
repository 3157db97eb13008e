"""Verbs for external workers: claim work under a secret lease id, renew it, release it, complete it once.

A leased run has the same row, lock, epoch and outcomes as one whose handler is called here. Any `advance` takes back a
lease that has expired; afterwards its worker can change nothing.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from ocean.kernel.arguments import CLEAR, UNSET, checked_count, checked_event, checked_limit, checked_names, request_of
from ocean.kernel.coordinator import Coordinator
from ocean.kernel.invoke import checked_outcome
from ocean.kernel.metrics import Observations
from ocean.kernel.runtime import commit_or_time
from ocean.kernel.store import Store
from ocean.kernel.store.claims import LeaseAsk, LeaseCompletion, LeasedRun
from ocean.kernel.store.runs import Behind
from ocean.state.clock import Clock
from ocean.state.eligibility import FAIR_EVERY
from ocean.state.errors import Conflict, InvalidValue, LeaseLost
from ocean.state.ids import new_lease_id
from ocean.state.outcomes import Outcome, outcome_name
from ocean.state.records import Input, RunInfo, RunOwner, RunStatus
from ocean.state.values import body_hash, checked_id, decode, encode, shown

DEFAULT_LEASE_MS = 30_000
SHORTEST_LEASE_MS = 10
LONGEST_LEASE_MS = 86_400_000
LONGEST_WAIT_MS = 60_000
LOOK_AGAIN_MS = 1_000
TURN_WAIT_MS = 10_000
MOST_QUEUES = 100


@dataclass(frozen=True, slots=True)
class Lease:
    """One tick to do until `expires_at`. Knowing `lease_id` is the right to renew, release and complete it.

    `idempotency_key` is the same for every attempt at this tick: pass it to external services. `row` is the run's row
    when it was leased, None if absent.
    """

    lease_id: str
    worker_id: str
    expires_at: int
    run: RunInfo
    tick: int
    call: int
    reason: str
    inputs: tuple[Input, ...]
    row: Any
    row_version: int
    idempotency_key: str

    @property
    def run_id(self) -> str:
        """The id of the leased run."""
        return self.run.run_id

    @property
    def input(self) -> Any:
        """The body of the first input; None if there is none."""
        return self.inputs[0].body if self.inputs else None


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The result of `complete_work`: the committed tick, and the run's status after it."""

    run_id: str
    tick: int
    outcome: str
    status: RunStatus | None


class LeaseVerbs:
    observed: Observations
    _store: Store
    _clock: Clock
    coordinator: Coordinator

    async def claim_work(
        self,
        clog_id: str,
        worker_id: str,
        lease_ms: int = DEFAULT_LEASE_MS,
        queues: Collection[str] | None = None,
        limit: int = 1,
        wait_ms: int = 0,
    ) -> list[Lease]:
        """Lease due runs of an external clog, from all its queues or some; wait up to `wait_ms` for the first."""
        checked_count(lease_ms, "lease_ms", least=SHORTEST_LEASE_MS, most=LONGEST_LEASE_MS)
        checked_count(wait_ms, "wait_ms", most=LONGEST_WAIT_MS)
        ids = [new_lease_id() for _ in range(checked_limit(limit))]
        ask = LeaseAsk(
            clog_id=checked_id(clog_id, "clog_id"),
            worker_id=checked_id(worker_id, "worker_id"),
            lease_ms=lease_ms,
            queues=checked_names(queues, "queues"),
            hashes=tuple(map(_hash, ids)),
            slot=self.coordinator.slot,
        )
        if queues is not None and not ask.queues:
            raise InvalidValue("queues must name at least one queue; leave it out to serve all")
        if len(ask.queues) > MOST_QUEUES:
            raise InvalidValue(f"queues must have at most {MOST_QUEUES} names, got {len(ask.queues)}")
        leased = await self._lease_in_time(ask, wait_ms)
        self.observed.leases[ask.clog_id] += len(leased)
        self.coordinator.slot = (self.coordinator.slot + len(leased)) % FAIR_EVERY
        return [_lease(lease_id, worker_id, one) for lease_id, one in zip(ids, leased, strict=False)]

    async def standing_of_lease(self, lease_id: str) -> RunOwner | None:
        """Return the `standing` of a leased run."""
        return await self._store.standing_of_lease(_hash(checked_id(lease_id, "lease_id")))

    async def renew_work(
        self,
        lease_id: str,
        *,
        lease_ms: int | None = None,
        events: Iterable[tuple[str, Any]] = (),
        request_key: str | None = None,
    ) -> int:
        """Extend a lease by its own time or by `lease_ms`. Returns when it expires now. `events` appear at once."""
        if lease_ms is not None:
            checked_count(lease_ms, "lease_ms", least=SHORTEST_LEASE_MS, most=LONGEST_LEASE_MS)
        hash, checked = _hash(checked_id(lease_id, "lease_id")), _events(events)
        body = [hash, lease_ms, [[type, decode(payload)] for type, payload in checked]]
        return await self._store.renew_lease(hash, lease_ms, checked, request_of(request_key, "renew_work", body))

    async def release_work(self, lease_id: str, *, request_key: str | None = None) -> RunStatus:
        """Give unfinished work back, for a worker that must stop: two are free, each further one is an attempt."""
        hash = _hash(checked_id(lease_id, "lease_id"))
        return await self._store.release_lease(hash, request_of(request_key, "release_work", hash))

    async def complete_work(
        self,
        lease_id: str,
        outcome: Outcome,
        events: Iterable[tuple[str, Any]] = (),
        row: Any = UNSET,
        row_version: int | None = None,
    ) -> WorkDone:
        """Commit a leased tick: its outcome, events, and optionally the run's row.

        A late completion is refused (`LeaseLost`). The same completion again returns the first result.
        """
        if not isinstance(outcome, Outcome):
            raise InvalidValue(
                f"outcome must be Ok(), Done(…), Continue(…), Wait(…), Retry(…) or Failed(…), got {shown(outcome)}"
            )
        outcome = checked_outcome(outcome)
        checked = _events(events)
        text = None if row is UNSET or row is CLEAR else encode(row, "row")
        if row_version is not None:
            checked_count(row_version, "row_version")
        completion = LeaseCompletion(
            lease_hash=_hash(checked_id(lease_id, "lease_id")),
            outcome=outcome,
            events=checked,
            writes_row=row is not UNSET,
            row=text,
            row_version=row_version,
            body_hash=_body_hash(outcome, checked, row is not UNSET, text),
        )
        return await self._complete_in_turn(completion)

    async def _complete_in_turn(self, completion: LeaseCompletion) -> WorkDone:
        """Commit; while another tick has a turn on the run's row, wait for commits and try again."""
        outcome = outcome_name(completion.outcome)
        until = self._clock.now() + TURN_WAIT_MS
        while True:
            seen = self._store.commits_seen()
            try:
                done = await self._store.complete_lease(completion)
            except LeaseLost:
                self.observed.completed("lease_lost")
                raise
            if not isinstance(done, Behind):
                self.observed.completed(outcome, done.run_id, done.tick)
                return WorkDone(done.run_id, done.tick, outcome, done.status)
            left = until - self._clock.now()
            if left <= 0:
                raise Conflict("another tick has its turn on the run's row; complete again")
            await commit_or_time(self._store, self._clock, seen, min(left, LOOK_AGAIN_MS))

    async def _lease_in_time(self, ask: LeaseAsk, wait_ms: int) -> list[LeasedRun]:
        is_over = anyio.Event()
        until = self._clock.now() + wait_ms
        # A timer in addition to the time: a clock that is set back must not prolong the wait.
        cancel = self._clock.call_later(wait_ms, is_over.set)
        try:
            while True:
                seen = self._store.commits_seen()
                leased = await self._lease(ask)
                left = min(until - self._clock.now(), wait_ms)
                if leased or left <= 0 or is_over.is_set():
                    return leased
                await commit_or_time(self._store, self._clock, seen, min(left, await self._next_look_in(ask.clog_id)))
        finally:
            cancel()

    async def _lease(self, ask: LeaseAsk) -> list[LeasedRun]:
        """Lease what is due. If the caller is cancelled meanwhile, it never gets the ids, so all is given back."""
        leased: list[LeasedRun] = []
        errors: list[Exception] = []

        async def lease() -> None:
            try:
                leased.extend(await self._store.lease_work(ask))
            except Exception as error:
                # Raised inside the task group, it would leave it as an exception group.
                errors.append(error)

        try:
            # In a task group a native cancellation arrives as the group's own, which the store's shield delays until
            # the result of the lease is known.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                for one in leased:
                    await self._store.give_back(one.claim.lock, one.claim.tick)
            raise
        for error in errors:
            raise error
        return leased

    async def _next_look_in(self, clog_id: str) -> int:
        """Return the time until the clog's next due run. If one is due already, it is in another queue: look soon."""
        due = (await self._store.agenda([clog_id])).next_wake_at
        ahead = LONGEST_WAIT_MS if due is None else due - self._clock.now()
        return ahead if ahead > 0 else LOOK_AGAIN_MS


def _lease(lease_id: str, worker_id: str, leased: LeasedRun) -> Lease:
    claim = leased.claim
    return Lease(
        lease_id=lease_id,
        worker_id=worker_id,
        expires_at=claim.lock_expires_at,
        run=claim.run,
        tick=claim.tick,
        call=claim.call,
        reason=claim.reason,
        inputs=claim.inputs,
        row=decode(leased.row.text),
        row_version=leased.row.version,
        idempotency_key=f"{claim.run_key}:{claim.tick}",
    )


def _hash(lease_id: str) -> str:
    """Only the hash of a lease id is stored: a copy of the database gives no right to complete work."""
    return hashlib.sha256(lease_id.encode()).hexdigest()


def _body_hash(outcome: Outcome, events: Iterable[tuple[str, str]], writes_row: bool, row: str | None) -> str:
    """Equal for equal completions, whatever the order of keys. Each value is encoded alone: it may be at its limit."""
    values = [decode(encode(value)) for value in asdict(outcome).values()]
    decoded = [[type, decode(payload)] for type, payload in events]
    # No row, a cleared row and a row of null are three different things.
    row_part = [writes_row, *([] if row is None else [decode(row)])]
    return body_hash([outcome_name(outcome), values, decoded, row_part])


def _events(events: Iterable[tuple[str, Any]]) -> tuple[tuple[str, str], ...]:
    if isinstance(events, str | Mapping) or not isinstance(events, Iterable):
        raise InvalidValue(f"events must be a list of (type, payload), got {shown(events)}")
    checked = []
    for event in events:
        if isinstance(event, str) or not isinstance(event, Sequence) or len(event) != 2:
            raise InvalidValue(f"each of events must be (type, payload), got {shown(event)}")
        checked.append((checked_event(event[0]), encode(event[1], "payload")))
    return tuple(checked)
