"""The `Store` protocol on PostgreSQL. What changes something is a function of the database; what only reads is in
`reading`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ocean.kernel.metrics import Histogram
from ocean.kernel.store.events import SweepAsk
from ocean.kernel.store.runs import Request
from ocean.state.access import ApiKey
from ocean.state.clock import Clock
from ocean.state.counters import Take, Taken
from ocean.state.effects import NewEvent, NewRun, NewSignal, RowKey
from ocean.state.errors import LockLost
from ocean.state.records import ClogRecord, KeyInfo, Lock, RunInfo, RunStatus, SignalReceipt, SweepResult
from ocean.state.values import encode
from ocean.stores.postgres.claims import Claims
from ocean.stores.postgres.client.batches import Writing
from ocean.stores.postgres.client.connection import Link
from ocean.stores.postgres.client.lock_thread import Courier
from ocean.stores.postgres.client.notifications import Waking
from ocean.stores.postgres.client.options import options_from
from ocean.stores.postgres.client.payloads import (
    clog_words,
    event_words,
    request_words,
    run_words,
    signal_words,
    take_words,
)
from ocean.stores.postgres.client.row_batches import RowReads
from ocean.stores.postgres.commits import Commits, taken_from
from ocean.stores.postgres.reads import Reads
from ocean.stores.postgres.retry_as_new import Retries
from ocean.stores.shared.rows import api_key_from, clog_from, shown_from


class PostgresStore(Claims, Commits, Retries, Reads):
    def __init__(self, url: str, clock: Clock, *, is_test: bool = False) -> None:
        options = options_from(url)
        self.link = Link(options, clock, is_test=is_test)
        self._waking = Waking(self.link)
        self.writing = Writing(self.link, self._waking.noticed)
        self.row_reads = RowReads(self.read_exact_rows)
        self._courier = Courier(options, clock)

    @property
    def clock(self) -> Clock:
        """The server's time, as well as it is known here."""
        return self.link.server_clock

    @property
    def batch_sizes(self) -> Histogram:
        return self.writing.batch_sizes

    async def open(self) -> None:
        await self.link.open()
        self._waking.open()

    async def close(self) -> None:
        await self._waking.close()
        self._courier.close()
        await self.writing.close()
        await self.link.close()

    def commits_seen(self) -> int:
        return self._waking.commits_seen()

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        return await self._waking.next_commit(seen, look_ms)

    async def register_clogs(self, clogs: Sequence[ClogRecord]) -> None:
        await self.writing.write("register_clogs", [clog_words(clog) for clog in clogs])

    async def create_run(self, new: NewRun, request: Request | None) -> RunInfo:
        answer = await self.writing.write("create_run", run_words(new), request)
        return made_from(new, answer["made_at"]) if "made_at" in answer else shown_from(answer)

    async def deliver_signal(self, signal: NewSignal, request: Request | None) -> SignalReceipt:
        answer = await self.writing.write("deliver_signal", signal_words(signal) | {"is_plain": True}, request)
        run_id, number, status, seq = answer
        return SignalReceipt(run_id, number, RunStatus(status), seq)

    async def take_turn(self, lock: Lock, keys: Sequence[RowKey]) -> bool:
        wanted = [key.text for key in keys]
        return bool(await self.writing.write("take_turn", {"run_id": lock.run_id, "epoch": lock.epoch, "keys": wanted}))

    async def give_back(self, lock: Lock, tick: int) -> RunStatus | None:
        words = {"run_id": lock.run_id, "epoch": lock.epoch, "tick": tick}
        try:
            return RunStatus(await self.writing.write("give_back", words))
        except LockLost:
            return None

    def renew_locks(self, locks: Sequence[Lock]) -> set[Lock]:
        self.link.check_open()
        lost = self._courier.write("renew_locks", [[lock.run_id, lock.epoch, lock.lock_ms] for lock in locks])
        return {locks[place] for place in lost}

    async def append_streamed(self, lock: Lock, tick: int, call: int, events: Sequence[NewEvent]) -> None:
        words = {"run_id": lock.run_id, "epoch": lock.epoch, "tick": tick, "call": call, "events": event_words(events)}
        await self.writing.write("append_streamed", words)

    async def store_step(self, lock: Lock, tick: int, name: str, result: str) -> str:
        words = {"run_id": lock.run_id, "epoch": lock.epoch, "tick": tick, "name": name, "result": result}
        return str(await self.writing.write("store_step", words))

    async def take(self, take: Take, request: Request | None) -> Taken:
        words = {"take": take_words(take), "request": request_words(request)}
        return taken_from(take, await self.writing.write("take", words))

    async def reset_counter(self, key: str, request: Request | None) -> bool:
        return bool(await self.writing.write("reset_counter", {"key": key}, request))

    async def keep_answer(self, request: Request, answer: str) -> str:
        return str(await self.writing.write("keep_answer", {"request": request_words(request), "answer": answer}))

    async def set_limit(self, key: str, limit: int, actor: str | None, request: Request | None) -> KeyInfo:
        return KeyInfo(**await self.writing.write("set_limit", {"key": key, "limit": limit, "actor": actor}, request))

    async def cancel_run(self, run_id: str, reason: str | None, actor: str | None, request: Request | None) -> RunInfo:
        words = {"run_id": run_id, "reason": reason or "cancelled", "actor": actor}
        return shown_from(await self.writing.write("cancel_run", words, request))

    async def set_run_paused(self, run_id: str, is_paused: bool, actor: str | None, request: Request | None) -> RunInfo:
        words = {"run_id": run_id, "is_paused": is_paused, "actor": actor}
        return shown_from(await self.writing.write("pause_run", words, request))

    async def set_clog_paused(
        self, clog_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> ClogRecord:
        words = {"clog_id": clog_id, "is_paused": is_paused, "actor": actor}
        return clog_from(await self.writing.write("pause_clog", words, request))

    async def delete_run(self, run_id: str, actor: str | None, request: Request | None) -> int:
        return int(await self.writing.write("delete_run", {"run_id": run_id, "actor": actor}, request))

    async def delete_session(self, session_id: str, actor: str | None, request: Request | None) -> int:
        return int(await self.writing.write("delete_session", {"session_id": session_id, "actor": actor}, request))

    async def sweep(self, ask: SweepAsk) -> SweepResult:
        words: dict[str, Any] = {name: getattr(ask, name) for name in SweepAsk.__slots__}
        events, runs, requests, counters = await self.writing.write("sweep", words)
        # A run that went may have been the last child of one that can go now.
        more = runs > 0 or max(events, requests, counters) >= ask.batch
        return SweepResult(events, runs, requests, more, counters)

    async def add_api_key(self, key: ApiKey, hash: str) -> ApiKey:
        words = {
            "key_id": key.key_id,
            "hash": hash,
            "actor": key.actor,
            "scopes": encode(list(key.scopes)),
            "roles": encode(list(key.roles)),
            "sessions": None if key.sessions is None else encode(list(key.sessions)),
            "expires_at": key.expires_at,
        }
        return replace(key, created_at=await self.writing.write("add_api_key", words))

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        row: Mapping[str, Any] | None = await self.writing.write("revoke_api_key", {"key_id": key_id})
        return None if row is None else api_key_from(row)

    async def add_web_session(self, hash: str, key_id: str, for_ms: int) -> int:
        words = {"hash": hash, "key_id": key_id, "for_ms": for_ms}
        return int(await self.writing.write("add_web_session", words))

    async def end_web_session(self, hash: str) -> bool:
        return bool(await self.writing.write("end_web_session", {"hash": hash}))


def made_from(new: NewRun, now: int) -> RunInfo:
    """A run as it was created, when nothing but what it was created with has a say in it: see `ocean_create_plain`."""
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
