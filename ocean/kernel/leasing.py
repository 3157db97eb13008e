"""Work for those outside: a run of an external clog is leased under a secret id, renewed, and completed once.

The same row, lock, epoch and outcomes as a tick that is called here. A lease that lapses is taken back by any
`advance`; whatever its worker says after that changes nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import anyio

from ocean.kernel.arguments import (
    CLEAR,
    UNSET,
    checked_count,
    checked_event,
    checked_limit,
    checked_names,
    request_of,
)
from ocean.kernel.invoke import checked_outcome
from ocean.kernel.metrics import Observations
from ocean.kernel.store import Behind, LeaseAsk, LeaseCompletion, LeasedRun, Store
from ocean.kernel.tick_run import commit_or_time
from ocean.state.access import Standing
from ocean.state.clock import Clock
from ocean.state.errors import Conflict, InvalidValue, LeaseLost
from ocean.state.ids import new_lease_id
from ocean.state.outcomes import Outcome, outcome_name
from ocean.state.records import Input, RunInfo, RunStatus
from ocean.state.values import body_hash, checked_id, decode, encode, shown

SHORTEST_LEASE_MS = 10
LONGEST_LEASE_MS = 86_400_000
LONGEST_WAIT_MS = 60_000
LOOK_AGAIN_MS = 1_000
PATIENCE_MS = 10_000
MOST_QUEUES = 100


@dataclass(frozen=True, slots=True)
class Lease:
    """One tick to do, until `expires_at`. Whoever knows `lease_id` may renew and complete it.

    `idempotency_key` is the same for every attempt at this tick: hand it to the outside world. `row` is the run's row
    as it was when it was leased, None if absent.
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
        """The leased run's id."""
        return self.run.run_id

    @property
    def input(self) -> Any:
        """The body of the first input; None if there is none."""
        return self.inputs[0].body if self.inputs else None


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What `complete_work` made of the run."""

    run_id: str
    tick: int
    outcome: str
    status: RunStatus | None


@dataclass(frozen=True, slots=True)
class Leasing:
    store: Store
    clock: Clock
    observed: Observations

    async def claim(
        self,
        clog_id: str,
        worker_id: str,
        lease_ms: int,
        queues: Iterable[str] | None,
        limit: int,
        wait_ms: int,
        slot: int,
    ) -> list[Lease]:
        """Lease what is due; with `wait_ms`, wait for the first thing that is."""
        checked_count(lease_ms, "lease_ms", least=SHORTEST_LEASE_MS, most=LONGEST_LEASE_MS)
        checked_count(wait_ms, "wait_ms", most=LONGEST_WAIT_MS)
        ids = [new_lease_id() for _ in range(checked_limit(limit))]
        ask = LeaseAsk(
            clog_id=checked_id(clog_id, "clog_id"),
            worker_id=checked_id(worker_id, "worker_id"),
            lease_ms=lease_ms,
            queues=checked_names(queues, "queues"),
            hashes=tuple(map(_hash, ids)),
            slot=slot,
        )
        if queues is not None and not ask.queues:
            raise InvalidValue("queues is empty: name the queues to serve, or leave it out for all")
        if len(ask.queues) > MOST_QUEUES:
            raise InvalidValue(f"a worker serves at most {MOST_QUEUES} queues at once, got {len(ask.queues)}")
        leased = await self._leased_in_time(ask, wait_ms)
        self.observed.leases[ask.clog_id] += len(leased)
        return [_lease(lease_id, worker_id, one) for lease_id, one in zip(ids, leased, strict=False)]

    async def _leased_in_time(self, ask: LeaseAsk, wait_ms: int) -> list[LeasedRun]:
        is_over = anyio.Event()
        until = self.clock.now() + wait_ms
        # By a timer too: a clock that is set back must not prolong the wait.
        cancel = self.clock.call_later(wait_ms, is_over.set)
        try:
            while True:
                seen = self.store.commits_seen()
                leased = await self._leased(ask)
                left = min(until - self.clock.now(), wait_ms)
                if leased or left <= 0 or is_over.is_set():
                    return leased
                await commit_or_time(self.store, self.clock, seen, min(left, await self._next_look_in(ask.clog_id)))
        finally:
            cancel()

    async def _leased(self, ask: LeaseAsk) -> list[LeasedRun]:
        """Lease what is due. A caller who is cancelled meanwhile never learns the ids: then it all goes back."""
        leased: list[LeasedRun] = []
        errors: list[Exception] = []

        async def lease() -> None:
            try:
                leased.extend(await self.store.lease_work(ask))
            except Exception as error:
                # Out of a group it would come as a group.
                errors.append(error)

        try:
            # A task of a group: a native cancellation reaches it as the group's own, which the store's shield holds
            # off until it is known what was leased.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                for one in leased:
                    await self.store.give_back(one.claim.lock, one.claim.tick)
            raise
        for error in errors:
            raise error
        return leased

    async def _next_look_in(self, clog_id: str) -> int:
        """Until the clog's next due time. What is due already and not ours is in other queues: look again soon."""
        due = (await self.store.agenda([clog_id])).next_wake_at
        ahead = LONGEST_WAIT_MS if due is None else due - self.clock.now()
        return ahead if ahead > 0 else LOOK_AGAIN_MS

    async def standing(self, lease_id: str) -> Standing | None:
        return await self.store.standing_of_lease(_hash(checked_id(lease_id, "lease_id")))

    async def release(self, lease_id: str, request_key: str | None) -> RunStatus:
        """Hand unfinished work back, to be done by another."""
        hash = _hash(checked_id(lease_id, "lease_id"))
        return await self.store.release_lease(hash, request_of(request_key, "release_work", hash))

    async def renew(
        self, lease_id: str, lease_ms: int | None, events: Iterable[tuple[str, Any]], request_key: str | None
    ) -> int:
        """Keep a lease for longer, and perhaps say how far the work has come; answers its new end."""
        if lease_ms is not None:
            checked_count(lease_ms, "lease_ms", least=SHORTEST_LEASE_MS, most=LONGEST_LEASE_MS)
        hash, said = _hash(checked_id(lease_id, "lease_id")), _events(events)
        told = [[type, decode(payload)] for type, payload in said]
        return await self.store.renew_lease(
            hash, lease_ms, said, request_of(request_key, "renew_work", [hash, lease_ms, told])
        )

    async def complete(
        self,
        lease_id: str,
        outcome: Outcome,
        events: Iterable[tuple[str, Any]],
        row: Any,
        row_version: int | None,
    ) -> WorkDone:
        """Commit the tick. The same completion again gets the first answer."""
        if not isinstance(outcome, Outcome):
            raise InvalidValue(
                f"outcome is Ok(), Done(…), Continue(…), Wait(…), Retry(…) or Failed(…), got {shown(outcome)}"
            )
        outcome = checked_outcome(outcome)
        said = _events(events)
        text = None if row is UNSET or row is CLEAR else encode(row, "row")
        if row_version is not None:
            checked_count(row_version, "row_version")
        completion = LeaseCompletion(
            lease_hash=_hash(checked_id(lease_id, "lease_id")),
            outcome=outcome,
            events=said,
            writes_row=row is not UNSET,
            row=text,
            row_version=row_version,
            body_hash=_body_hash(outcome, said, row is not UNSET, text),
        )
        patience_ends = self.clock.now() + PATIENCE_MS
        while True:
            seen = self.store.commits_seen()
            try:
                answer = await self.store.complete_lease(completion)
            except LeaseLost:
                self.observed.completed("lease_lost")
                raise
            if not isinstance(answer, Behind):
                self.observed.completed(outcome_name(outcome), answer.run_id, answer.tick)
                return WorkDone(answer.run_id, answer.tick, outcome_name(outcome), answer.status)
            left = patience_ends - self.clock.now()
            if left <= 0:
                raise Conflict("another tick has its turn on the run's row; complete again")
            await commit_or_time(self.store, self.clock, seen, min(left, LOOK_AGAIN_MS))


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
    """What is stored of a lease id: a copy of the database completes nobody's work."""
    return hashlib.sha256(lease_id.encode()).hexdigest()


def _body_hash(outcome: Outcome, events: Iterable[tuple[str, str]], writes_row: bool, row: str | None) -> str:
    """Equal for equal completions, whatever the order of keys. Each value is encoded alone: it may be at its limit."""
    said = [decode(encode(value)) for value in asdict(outcome).values()]
    told = [[type, decode(payload)] for type, payload in events]
    # No row at all, a row that is cleared and a row of null are three things.
    kept = [writes_row, *([] if row is None else [decode(row)])]
    return body_hash([outcome_name(outcome), said, told, kept])


def _events(events: Iterable[tuple[str, Any]]) -> tuple[tuple[str, str], ...]:
    if isinstance(events, str | Mapping) or not isinstance(events, Iterable):
        raise InvalidValue(f"events are a list of (type, payload), got {shown(events)}")
    said = []
    for event in events:
        if isinstance(event, str) or not isinstance(event, Sequence) or len(event) != 2:
            raise InvalidValue(f"each of events is (type, payload), got {shown(event)}")
        said.append((checked_event(event[0]), encode(event[1], "payload")))
    return tuple(said)
