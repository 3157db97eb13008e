"""The `Store` protocol on PostgreSQL. Each verb here calls a function in the database; verbs that only read are in
`reads`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ocean.kernel.metrics import Histogram
from ocean.kernel.store.claims import Renewal
from ocean.kernel.store.events import StepStreamed, SweepAsk
from ocean.kernel.store.runs import Request
from ocean.state.clock import Clock
from ocean.state.counters import Take, Taken
from ocean.state.effects import NewEvent, NewRun, NewSignal, RowKey
from ocean.state.errors import LockLost
from ocean.state.records import (
    CANCEL_GRACE_MS,
    ApiKey,
    ClogRecord,
    Key,
    KeyInfo,
    Lock,
    RunInfo,
    RunStatus,
    SignalReceipt,
    SweepResult,
)
from ocean.state.retry_as_new import refuse_unless_failed, retried
from ocean.state.values import decode, encode
from ocean.stores.postgres.claims import Claims
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.connection import ConnectionPool
from ocean.stores.postgres.client.lock_thread import LockThread
from ocean.stores.postgres.client.notifications import Notifications
from ocean.stores.postgres.client.options import options_from
from ocean.stores.postgres.client.payloads import (
    clog_payload,
    event_payload,
    request_payload,
    run_payload,
    signal_payload,
    take_payload,
)
from ocean.stores.postgres.client.row_batches import RowBatches
from ocean.stores.postgres.commits import Commits, taken_from
from ocean.stores.postgres.instances import InstanceVerbs
from ocean.stores.postgres.reads import Reads
from ocean.stores.shared.refusals import run_not_found
from ocean.stores.shared.row_rules import kept_answer
from ocean.stores.shared.rows import api_key_from, clog_from, run_from, run_info_from


class PostgresStore(Claims, Commits, InstanceVerbs, Reads):
    """The store of the instances that share one PostgreSQL database."""

    def __init__(self, url: str, clock: Clock, *, is_test: bool = False) -> None:
        options = options_from(url)
        self.pool = ConnectionPool(options, clock, is_test=is_test)
        self._notifications = Notifications(self.pool)
        self.batches = WriteBatches(self.pool, self._notifications.note_commit)
        self.row_batches = RowBatches(self.read_exact_rows)
        self._lock_thread = LockThread(options, clock)

    @property
    def clock(self) -> Clock:
        """The server's time, as precisely as it is known here."""
        return self.pool.server_clock

    @property
    def batch_sizes(self) -> Histogram:
        return self.batches.batch_sizes

    async def open(self) -> None:
        await self.pool.open()
        self._notifications.open()

    async def close(self) -> None:
        await self._notifications.close()
        self._lock_thread.close()
        await self.batches.close()
        await self.pool.close()

    def commits_seen(self) -> int:
        return self._notifications.commits_seen()

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        return await self._notifications.next_commit(seen, look_ms)

    async def register_clogs(self, clogs: Sequence[ClogRecord]) -> None:
        await self.batches.write("register_clogs", [clog_payload(clog) for clog in clogs])

    async def create_run(self, new: NewRun, request: Request | None) -> RunInfo:
        answer = await self.batches.write("create_run", run_payload(new), request)
        return made_from(new, answer["made_at"]) if "made_at" in answer else run_info_from(answer)

    async def retry_run(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        key = None if request is None else request.key
        found, now = await self._read_at("failed_run", run_id=run_id, key=key)
        if request is not None and (kept := kept_answer(found["request"], request)) is not None:
            return run_info_from(json.loads(kept))
        if found["run"] is None:
            raise run_not_found(run_id)
        run = run_from(found["run"])
        refuse_unless_failed(run)
        attributes = {name: decode(value) for name, value in found["attributes"]}
        keys = tuple(Key(name, hold) for name, hold in found["keys"])
        new = retried(run, found["details"], attributes, keys, found["input"], actor, now)
        payload = {"run_id": run_id, "new": run_payload(new)}
        return run_info_from(await self.batches.write("retry_run", payload, request))

    async def deliver_signal(self, signal: NewSignal, request: Request | None) -> SignalReceipt:
        answer = await self.batches.write("deliver_signal", signal_payload(signal) | {"is_plain": True}, request)
        run_id, number, status, seq = answer
        return SignalReceipt(run_id, number, RunStatus(status), seq)

    async def take_turn(self, lock: Lock, keys: Sequence[RowKey]) -> bool:
        wanted = [key.text for key in keys]
        return bool(await self.batches.write("take_turn", {"run_id": lock.run_id, "epoch": lock.epoch, "keys": wanted}))

    async def give_back(self, lock: Lock, tick: int, *, counts: bool = True) -> RunStatus | None:
        payload = {"run_id": lock.run_id, "epoch": lock.epoch, "tick": tick, "counts": counts}
        try:
            return RunStatus(await self.batches.write("give_back", payload))
        except LockLost:
            return None

    def renew_locks(self, locks: Sequence[Lock]) -> Renewal:
        self.pool.check_open()
        answer = self._lock_thread.write("renew_locks", [[lock.run_id, lock.epoch, lock.lock_ms] for lock in locks])
        lost, ending = ({locks[place] for place in places} for places in answer)
        return Renewal(lost, ending)

    async def call_apart(self, locks: Sequence[Lock]) -> set[Lock]:
        lost = await self.batches.write("call_apart", [[lock.run_id, lock.epoch] for lock in locks])
        return {locks[place] for place in lost}

    async def append_streamed(self, lock: Lock, tick: int, call: int, events: Sequence[NewEvent]) -> None:
        payload = {
            "run_id": lock.run_id,
            "epoch": lock.epoch,
            "tick": tick,
            "call": call,
            "events": event_payload(events),
        }
        await self.batches.write("append_streamed", payload)

    async def store_step(
        self, lock: Lock, tick: int, name: str, result: str, streamed: StepStreamed | None = None
    ) -> str:
        payload = {"run_id": lock.run_id, "epoch": lock.epoch, "tick": tick, "name": name, "result": result}
        if streamed is not None:
            events = event_payload([streamed.event])
            payload["streamed"] = {"tick": streamed.tick, "call": streamed.call, "events": events}
        return str(await self.batches.write("store_step", payload))

    async def take(self, take: Take, request: Request | None) -> Taken:
        payload = {"take": take_payload(take), "request": request_payload(request)}
        return taken_from(take, await self.batches.write("take", payload))

    async def reset_counter(self, key: str, request: Request | None) -> bool:
        return bool(await self.batches.write("reset_counter", {"key": key}, request))

    async def keep_answer(self, request: Request, answer: str) -> str:
        return str(await self.batches.write("keep_answer", {"request": request_payload(request), "answer": answer}))

    async def set_limit(self, key: str, limit: int, actor: str | None, request: Request | None) -> KeyInfo:
        return KeyInfo(**await self.batches.write("set_limit", {"key": key, "limit": limit, "actor": actor}, request))

    async def cancel_run(self, run_id: str, reason: str | None, actor: str | None, request: Request | None) -> RunInfo:
        payload = {"run_id": run_id, "reason": reason or "cancelled", "actor": actor}
        return run_info_from(await self.batches.write("cancel_run", payload, request))

    async def retry_end(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        return run_info_from(await self.batches.write("retry_end", {"run_id": run_id, "actor": actor}, request))

    async def set_run_paused(self, run_id: str, is_paused: bool, actor: str | None, request: Request | None) -> RunInfo:
        payload = {"run_id": run_id, "is_paused": is_paused, "actor": actor}
        return run_info_from(await self.batches.write("pause_run", payload, request))

    async def set_clog_paused(
        self, clog_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> ClogRecord:
        payload = {"clog_id": clog_id, "is_paused": is_paused, "actor": actor}
        row = await self.batches.write("pause_clog", payload, request)
        # A result that was kept for its key before an upgrade lacks newer columns.
        return clog_from({"end_retry": None, "grace_ms": CANCEL_GRACE_MS} | row)

    async def delete_run(self, run_id: str, actor: str | None, request: Request | None) -> int:
        return int(await self.batches.write("delete_run", {"run_id": run_id, "actor": actor}, request))

    async def delete_session(self, session_id: str, actor: str | None, request: Request | None) -> int:
        return int(await self.batches.write("delete_session", {"session_id": session_id, "actor": actor}, request))

    async def sweep(self, ask: SweepAsk) -> SweepResult:
        payload: dict[str, Any] = {name: getattr(ask, name) for name in SweepAsk.__slots__}
        events, runs, requests, counters = await self.batches.write("sweep", payload)
        # A removed run may have been the last child of one that can be removed now.
        more = runs > 0 or max(events, requests, counters) >= ask.batch
        return SweepResult(events, runs, requests, more, counters)

    async def add_api_key(self, key: ApiKey, hash: str) -> ApiKey:
        payload = {
            "key_id": key.key_id,
            "hash": hash,
            "actor": key.actor,
            "scopes": encode(list(key.scopes)),
            "roles": encode(list(key.roles)),
            "sessions": None if key.sessions is None else encode(list(key.sessions)),
            "expires_at": key.expires_at,
        }
        return replace(key, created_at=await self.batches.write("add_api_key", payload))

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        row: Mapping[str, Any] | None = await self.batches.write("revoke_api_key", {"key_id": key_id})
        return None if row is None else api_key_from(row)

    async def add_web_session(self, hash: str, key_id: str, for_ms: int) -> int:
        payload = {"hash": hash, "key_id": key_id, "for_ms": for_ms}
        return int(await self.batches.write("add_web_session", payload))

    async def end_web_session(self, hash: str) -> bool:
        return bool(await self.batches.write("end_web_session", {"hash": hash}))


def made_from(new: NewRun, now: int) -> RunInfo:
    """Build the public record of a new run that depends on nothing but its arguments: see `ocean_create_plain`."""
    has_input = new.input is not None
    return RunInfo(
        run_id=new.run_id,
        session_id=new.session_id,
        clog_id=new.clog_id,
        status=RunStatus.PENDING if has_input else RunStatus.IDLE,
        attempt=0,
        max_attempts=new.retry.max_attempts,
        priority=new.priority,
        tick=0,
        pending_count=int(has_input),
        paused=False,
        ending=None,
        wake_at=None,
        due_at=now if has_input else None,
        deadline_at=None,
        locked_by=None,
        lock_expires_at=None,
        output=None,
        error=None,
        attributes={},
        parent_run_id=None,
        correlation_id=new.correlation_id or new.run_id,
        dedupe_key=None,
        created_at=now,
        updated_at=now,
        ended_at=None,
    )
