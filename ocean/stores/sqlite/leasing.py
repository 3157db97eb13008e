"""Leases: claims for external workers, identified by the hash of a secret id."""

import sqlite3
from collections.abc import Sequence

from ocean.kernel.store.claims import (
    ClaimableClog,
    ClaimAsk,
    Committed,
    LeaseAsk,
    LeaseCompletion,
    LeaseDone,
    LeasedRun,
    TickCommit,
)
from ocean.kernel.store.runs import Behind, Request
from ocean.state.effects import Effects, NewEvent, RowKey, RowWrite
from ocean.state.errors import LockLost
from ocean.state.outcomes import Retry
from ocean.state.records import Claim, Lock, Run, RunStatus
from ocean.state.transitions import refuse_unless_held, renewed
from ocean.state.values import decode, encode
from ocean.stores.shared import refusals
from ocean.stores.shared.claim_plan import MOST_ROUNDS
from ocean.stores.sqlite.claiming import claim_due, has_work
from ocean.stores.sqlite.committing import commit_tick, give_back
from ocean.stores.sqlite.creating import unknown_clog
from ocean.stores.sqlite.engine.executor import UnitExecutor, once
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.storage import read_row


class SqliteLeaseStore(UnitExecutor):
    """Verbs about leases."""

    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        for _ in range(MOST_ROUNDS):
            if not await self._read(lambda u: has_work(u, claim_ask(u, ask))):
                return []
            leased = await self._write(lambda u: lease_work(u, ask))
            if leased:
                return leased
        return []

    async def renew_lease(
        self, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]], request: Request | None
    ) -> int:
        def act(u: Unit) -> int:
            return once(u, request, int, lambda: renew_lease(u, lease_hash, lease_ms, events))

        return await self._write(act)

    async def release_lease(self, lease_hash: str, request: Request | None) -> RunStatus:
        def act(u: Unit) -> RunStatus:
            return once(u, request, RunStatus, lambda: release_lease(u, lease_hash))

        return await self._write(act)

    async def complete_lease(self, completion: LeaseCompletion) -> LeaseDone | Behind:
        return await self._write(lambda u: complete_lease(u, completion))


def claim_ask(u: Unit, ask: LeaseAsk) -> ClaimAsk:
    """The claim that a lease makes. Refused for clogs that are unknown or not external."""
    clog = u.clog(ask.clog_id)
    if clog is None:
        raise unknown_clog(u, ask.clog_id)
    if not clog.external:
        raise refusals.not_leased(ask.clog_id)
    claimable = ClaimableClog(clog.clog_id, ask.lease_ms, clog.version, clog.takes_all_inputs)
    return ClaimAsk(
        {clog.clog_id: claimable}, ask.worker_id, len(ask.hashes), ask.slot, queues=ask.queues, is_lease=True
    )


def lease_work(u: Unit, ask: LeaseAsk) -> list[LeasedRun]:
    claims = claim_due(u, claim_ask(u, ask))
    return [_lease(u, ask, claim, lease_hash) for claim, lease_hash in zip(claims, ask.hashes, strict=False)]


def _lease(u: Unit, ask: LeaseAsk, claim: Claim, lease_hash: str) -> LeasedRun:
    row = read_row(u, _own_row(ask.clog_id, claim.run.run_id))
    clog = u.clog(ask.clog_id)
    assert clog is not None
    u.do(
        "insert_lease",
        lease_hash=lease_hash,
        run_id=claim.run.run_id,
        epoch=claim.lock.epoch,
        tick=claim.tick,
        call=claim.call,
        worker_id=ask.worker_id,
        version=clog.version,
        lease_ms=ask.lease_ms,
        row_version=row.version,
        now=u.now,
    )
    return LeasedRun(claim, row)


def renew_lease(u: Unit, lease_hash: str, lease_ms: int | None, events: Sequence[tuple[str, str]]) -> int:
    lease = _found(u, lease_hash)
    run = _held_run(u, lease)
    tick = u.one("get_tick", run_id=run.run_id, tick=lease["tick"])
    for type, payload in events:
        u.event(
            run.run_id,
            type,
            None,
            text=payload,
            tick=lease["tick"],
            call=lease["call"],
            actor=lease["worker_id"],
            caused_by=tick["caused_by"] if tick else None,
        )
    run = u.save(renewed(u.run(run.run_id), lease_ms or lease["lease_ms"], u.now))
    assert run.lock_expires_at is not None
    return run.lock_expires_at


def release_lease(u: Unit, lease_hash: str) -> RunStatus:
    lease = _found(u, lease_hash)
    run = _held_run(u, lease)
    return give_back(u, Lock(run.run_id, lease["epoch"], lease["lease_ms"]), lease["tick"])


def complete_lease(u: Unit, completion: LeaseCompletion) -> LeaseDone | Behind:
    lease = _found(u, completion.lease_hash)
    if lease["answer"] is not None:
        if lease["body_hash"] != completion.body_hash:
            raise refusals.lease_completed(lease["run_id"])
        status = decode(lease["answer"])
        return LeaseDone(lease["run_id"], lease["tick"], RunStatus(status) if status else None)
    run = _held_run(u, lease)
    commit = TickCommit(
        lock=Lock(run.run_id, lease["epoch"], lease["lease_ms"]),
        clog_id=run.clog_id,
        tick=lease["tick"],
        call=lease["call"],
        outcome=completion.outcome,
        effects=_effects(u, run, lease, completion),
        instance_id=lease["worker_id"],
        version=lease["version"],
        claimed_at=lease["claimed_at"],
    )
    answer = commit_tick(u, commit)
    if isinstance(answer, Behind):
        return answer
    # Its one row was compared above, and it takes from no counter: nothing can be contended.
    assert isinstance(answer, Committed)
    u.do(
        "complete_lease",
        lease_hash=completion.lease_hash,
        body_hash=completion.body_hash,
        answer=encode(answer.status),
    )
    return LeaseDone(run.run_id, lease["tick"], answer.status)


def _effects(u: Unit, run: Run, lease: sqlite3.Row, completion: LeaseCompletion) -> Effects:
    if isinstance(completion.outcome, Retry):
        return Effects()
    events = [NewEvent(type, payload, run.clog_id) for type, payload in completion.events]
    if not completion.writes_row:
        return Effects(events=events)
    key = _own_row(run.clog_id, run.run_id)
    now = read_row(u, key)
    read = lease["row_version"] if completion.row_version is None else completion.row_version
    if now.version != read:
        raise refusals.row_changed(run.run_id, read, now.version, now.text)
    return Effects(writes=[RowWrite(key, read, completion.row)], events=events)


def _own_row(clog_id: str, run_id: str) -> RowKey:
    return RowKey("run", clog_id, run_id=run_id)


def _found(u: Unit, lease_hash: str) -> sqlite3.Row:
    lease = u.one("get_lease", lease_hash=lease_hash)
    if lease is None:
        raise refusals.no_such_lease()
    return lease


def _held_run(u: Unit, lease: sqlite3.Row) -> Run:
    try:
        return refuse_unless_held(u.find(lease["run_id"]), lease["epoch"], lease["run_id"])
    except LockLost:
        run = u.find(lease["run_id"])
        raise refusals.lease_lost(lease["run_id"], lease["worker_id"], run.status if run else None) from None
