"""The `Store` protocol on SQLite: each verb is one unit, run whole on the writer or on a snapshot of the reader."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from ocean.kernel.metrics import Histogram
from ocean.kernel.store.claims import ClaimAsk, ClaimOrder, NotClaimable, RowsAnswer, RowsAsk, TickAnswer, TickCommit
from ocean.kernel.store.events import SweepAsk
from ocean.kernel.store.runs import Behind, CallCommit, CallConflict, CallDone, Request
from ocean.state.clock import Clock
from ocean.state.counters import Take, Taken
from ocean.state.effects import NewEvent, NewRun, NewSignal, RowKey
from ocean.state.eligibility import Surroundings
from ocean.state.errors import LockLost
from ocean.state.filters import FeedFilter, RunFilter
from ocean.state.outcomes import ErrorInfo
from ocean.state.records import (
    DEFAULT_QUEUE,
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
from ocean.state.transitions import paused, refuse_if_ended, refuse_unless_held, renewed, resumed
from ocean.state.values import decode, encode
from ocean.stores.shared import claim_plan
from ocean.stores.shared.rows import clog_from, input_from, tick_from
from ocean.stores.sqlite import (
    claiming,
    committing,
    counters,
    creating,
    deleting,
    event_log,
    inbox,
    keys,
    listing,
    requests,
    retry_as_new,
    storage,
)
from ocean.stores.sqlite.access import AccessStore
from ocean.stores.sqlite.ending import request_end
from ocean.stores.sqlite.engine.database import Database
from ocean.stores.sqlite.engine.executor import Order, Transactions
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.stores.sqlite.lease_verbs import LeaseStore
from ocean.stores.sqlite.run_info import info

T = TypeVar("T")


class SqliteStore(AccessStore, LeaseStore):
    def __init__(self, database: str | Transactions, clock: Clock) -> None:
        """On the file of this path, or on whatever else runs whole units."""
        self._transactions = Database(database) if isinstance(database, str) else database
        self._clock = clock

    @property
    def database(self) -> Database:
        assert isinstance(self._transactions, Database)
        return self._transactions

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def batch_sizes(self) -> Histogram:
        return self._transactions.batch_sizes

    async def open(self) -> None:
        await self._transactions.open()

    async def close(self) -> None:
        await self._transactions.close()

    def commits_seen(self) -> int:
        return self._transactions.commits_seen()

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        return await self._transactions.next_commit(seen, look_ms)

    def _unit(self, act: Callable[[Unit], T]) -> Callable[[Transaction], T]:
        def run(transaction: Transaction) -> T:
            u = Unit(transaction, self._clock.now())
            answer = act(u)
            u.flush()
            return answer

        return run

    async def _write(self, act: Callable[[Unit], T]) -> T:
        return await self._transactions.write(self._unit(act))

    async def _read(self, act: Callable[[Unit], T]) -> T:
        unit = self._unit(act)
        return await self._transactions.read(lambda db: unit(Transaction(db)))

    async def register_clogs(self, clogs: Sequence[ClogRecord]) -> None:
        def act(u: Unit) -> None:
            for clog in clogs:
                facts: dict[str, Any] = {
                    "clog_id": clog.clog_id,
                    "version": clog.version,
                    "has_on_end": clog.has_on_end,
                    "allows": encode(list(clog.allows)),
                    "now": u.now,
                }
                before = u.clog(clog.clog_id)
                if clog.external and before is not None and not before.external:
                    u.do("queue_older_runs", clog_id=clog.clog_id, queue=DEFAULT_QUEUE)
                if clog.has_handler or clog.external:
                    u.do("register_clog", **facts, external=clog.external, takes_all_inputs=clog.takes_all_inputs)
                else:
                    u.do("register_methods", **facts)

        await self._write(act)

    async def list_clogs(self) -> list[ClogRecord]:
        return await self._read(lambda u: [clog_from(row) for row in u.all("list_clogs")])

    async def create_run(self, new: NewRun, request: Request | None) -> RunInfo:
        def act(u: Unit) -> RunInfo:
            return requests.once(u, request, RunInfo, lambda: creating.create_and_show(u, new))

        return await self._write(act)

    async def retry_run(self, run_id: str, actor: str | None, request: Request | None) -> RunInfo:
        def act(u: Unit) -> RunInfo:
            return requests.once(u, request, RunInfo, lambda: info(u, retry_as_new.retry_as_new(u, run_id, actor)))

        return await self._write(act)

    async def find_run(self, clog_id: str, session_id: str, dedupe_key: str) -> tuple[str, str] | None:
        return await self._read(lambda u: creating.holder_of_key(u, clog_id, session_id, dedupe_key))

    async def deliver_signal(self, signal: NewSignal, request: Request | None) -> SignalReceipt:
        def act(u: Unit) -> SignalReceipt:
            return requests.once(u, request, SignalReceipt, lambda: inbox.deliver(u, signal))

        return await self._write(act)

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> ClaimOrder:
        return Order(self._transactions, self._unit(lambda u: claiming.claim_woken(u, ask)), claimed)

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        for _ in range(claim_plan.MOST_ROUNDS):
            # One that is made anyway need not be thought about.
            is_due = self._transactions.is_about_to_write
            if not is_due and not ask.piggyback:
                is_due = await self._read(lambda u: claiming.has_work(u, ask))
            claims = await self._write(lambda u: claiming.claim_due(u, ask)) if is_due else []
            if claims or not is_due:
                return claims
        return []

    async def preview_claim(self, ask: ClaimAsk) -> Claim | NotClaimable:
        return await self._read(lambda u: claiming.preview_claim(u, ask))

    async def read_rows(self, ask: RowsAsk) -> RowsAnswer:
        return await self._read(lambda u: storage.read_rows(u, ask))

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        return await self._write(lambda u: committing.commit_tick(u, commit))

    async def take_turn(self, lock: Lock, keys: Sequence[RowKey]) -> bool:
        def act(u: Unit) -> bool:
            refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id)
            return storage.take_turn(u, lock.run_id, lock.epoch, keys)

        return await self._write(act)

    async def give_back(self, lock: Lock, tick: int) -> RunStatus | None:
        try:
            return await self._write(lambda u: committing.give_back(u, lock, tick))
        except LockLost:
            return None

    def renew_locks(self, locks: Sequence[Lock]) -> set[Lock]:
        def act(u: Unit) -> set[Lock]:
            lost = set()
            for lock in locks:
                run = u.find(lock.run_id)
                if run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != lock.epoch:
                    lost.add(lock)
                else:
                    u.save(renewed(run, lock.lock_ms, u.now))
            return lost

        return self._transactions.write_blocking(self._unit(act))

    async def append_streamed(self, lock: Lock, tick: int, call: int, events: Sequence[NewEvent]) -> None:
        def act(u: Unit) -> None:
            refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id)
            tick_row = u.one("get_tick", run_id=lock.run_id, tick=tick)
            caused_by = tick_row["caused_by"] if tick_row else None
            for event in events:
                u.event(
                    lock.run_id,
                    event.type,
                    None,
                    text=event.payload,
                    tick=tick,
                    call=call,
                    clog_id=event.clog_id,
                    caused_by=caused_by,
                )

        await self._write(act)

    async def read_step(self, run_id: str, tick: int, name: str) -> str | None:
        def act(u: Unit) -> str | None:
            row = u.one("get_step", run_id=run_id, tick=tick, name=name)
            return row["result"] if row else None

        return await self._read(act)

    async def store_step(self, lock: Lock, tick: int, name: str, result: str) -> str:
        def act(u: Unit) -> str:
            refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id)
            first = u.one("get_step", run_id=lock.run_id, tick=tick, name=name)
            if first is not None:
                return str(first["result"])
            u.later("insert_step", lock.run_id, run_id=lock.run_id, tick=tick, name=name, result=result, now=u.now)
            return result

        return await self._write(act)

    async def commit_call(self, commit: CallCommit) -> CallDone | CallConflict | Behind:
        def act(u: Unit) -> CallDone | CallConflict | Behind:
            request = commit.request
            stored = requests.stored_answer(u, request) if request else None
            if stored is not None:
                return CallDone(stored, is_repeated=True)
            answer = committing.commit_call(u, commit)
            if request is not None and isinstance(answer, CallDone):
                requests.keep_answer(u, request, answer.answer)
            return answer

        return await self._write(act)

    async def look_at_counter(self, takes: Sequence[Take]) -> Taken:
        return await self._read(lambda u: counters.look(u, takes))

    async def take(self, take: Take, request: Request | None) -> Taken:
        def act(u: Unit) -> Taken:
            stored = requests.stored_answer(u, request) if request else None
            if stored is not None:
                return Taken(**decode(stored))
            taken = counters.take(u, take)
            if request is not None and taken:
                requests.keep_answer(u, request, encode(asdict(taken)))
            return taken

        return await self._write(act)

    async def reset_counter(self, key: str, request: Request | None) -> bool:
        def act(u: Unit) -> bool:
            return requests.once(u, request, bool, lambda: u.do("reset_counter", key=key) > 0)

        return await self._write(act)

    async def stored_answer(self, request: Request) -> str | None:
        return await self._read(lambda u: requests.stored_answer(u, request))

    async def keep_answer(self, request: Request, answer: str) -> str:
        def act(u: Unit) -> str:
            stored = requests.stored_answer(u, request)
            if stored is None:
                requests.keep_answer(u, request, answer)
            return answer if stored is None else stored

        return await self._write(act)

    async def get_run(self, run_id: str) -> RunInfo | None:
        def act(u: Unit) -> RunInfo | None:
            run = u.find(run_id)
            return None if run is None else info(u, run)

        return await self._read(act)

    async def survey(self, run_id: str, clog_ids: Collection[str]) -> tuple[Run, Surroundings] | None:
        def act(u: Unit) -> tuple[Run, Surroundings] | None:
            run = u.find(run_id)
            return None if run is None else (run, claiming.surroundings(u, run, clog_ids))

        return await self._read(act)

    async def set_limit(self, key: str, limit: int, actor: str | None, request: Request | None) -> KeyInfo:
        def change(u: Unit) -> KeyInfo:
            return requests.once(u, request, KeyInfo, lambda: keys.set_limit(u, key, limit, actor))

        return await self._write(change)

    async def get_key(self, key: str) -> KeyInfo:
        return await self._read(lambda u: keys.key_info(u, key))

    async def list_keys(self, after: str, limit: int) -> list[KeyInfo]:
        return await self._read(lambda u: keys.list_keys(u, after, limit))

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        return await self._read(lambda u: listing.list_runs(u, where, limit, cursor, is_descending))

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount:
        return await self._read(lambda u: listing.count_runs(u, where, cap))

    async def list_ticks(self, run_id: str, after: int, limit: int) -> list[TickInfo]:
        def act(u: Unit) -> list[TickInfo]:
            u.run(run_id)
            return [tick_from(row) for row in u.all("list_ticks", run_id=run_id, after=after, limit=limit)]

        return await self._read(act)

    async def list_inputs(self, run_id: str, after: int, limit: int) -> list[Input]:
        def act(u: Unit) -> list[Input]:
            u.run(run_id)
            return [input_from(row) for row in u.all("list_inputs", run_id=run_id, after=after, limit=limit)]

        return await self._read(act)

    async def due_inputs(self, run_id: str, limit: int) -> list[Input]:
        def act(u: Unit) -> list[Input]:
            return [input_from(row) for row in u.all("due_inputs", run_id=run_id, now=u.now, limit=limit)]

        return await self._read(act)

    async def agenda(self, clog_ids: Collection[str]) -> Agenda:
        return await self._read(lambda u: claiming.agenda(u, frozenset(clog_ids)))

    async def cancel_run(self, run_id: str, reason: str | None, actor: str | None, request: Request | None) -> RunInfo:
        def cancel(u: Unit) -> RunInfo:
            run = u.run(run_id)
            if run.ending is None:
                refuse_if_ended(run)
                request_end(u, run_id, Ending.CANCEL, ErrorInfo("cancelled", reason or "cancelled"), actor=actor)
            u.flush()
            return info(u, u.run(run_id))

        return await self._write(lambda u: requests.once(u, request, RunInfo, lambda: cancel(u)))

    async def set_run_paused(self, run_id: str, is_paused: bool, actor: str | None, request: Request | None) -> RunInfo:
        def change(u: Unit) -> RunInfo:
            run = u.run(run_id)
            following = (paused if is_paused else resumed)(run, u.now)
            if run.paused != is_paused:
                u.save(following)
                payload = {"status": run.status}
                u.event(run_id, "run.paused" if is_paused else "run.resumed", payload, actor=actor)
            u.flush()
            return info(u, u.run(run_id))

        return await self._write(lambda u: requests.once(u, request, RunInfo, lambda: change(u)))

    async def set_clog_paused(
        self, clog_id: str, is_paused: bool, actor: str | None, request: Request | None
    ) -> ClogRecord:
        def change(u: Unit) -> ClogRecord:
            clog = u.clog(clog_id)
            if clog is None:
                raise creating.unknown_clog(u, clog_id)
            if clog.paused != is_paused:
                u.do("set_clog_paused", clog_id=clog_id, paused=is_paused)
                type = "clog.paused" if is_paused else "clog.resumed"
                u.append(type=type, payload="{}", clog_id=clog_id, actor=actor)
            return replace(clog, paused=is_paused)

        return await self._write(lambda u: requests.once(u, request, ClogRecord, lambda: change(u)))

    async def delete_run(self, run_id: str, actor: str | None, request: Request | None) -> int:
        def delete(u: Unit) -> int:
            u.run(run_id)
            return deleting.delete_run(u, run_id, actor)

        return await self._write(lambda u: requests.once(u, request, int, lambda: delete(u)))

    async def delete_session(self, session_id: str, actor: str | None, request: Request | None) -> int:
        def delete(u: Unit) -> int:
            return deleting.delete_session(u, session_id, actor)

        return await self._write(lambda u: requests.once(u, request, int, lambda: delete(u)))

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]:
        return await self._read(lambda u: event_log.read_events(u, where, after, limit))

    async def read_newest_events(self, where: FeedFilter, before: int | None, limit: int) -> list[Event]:
        return await self._read(lambda u: event_log.read_newest_events(u, where, before, limit))

    async def event_bounds(self) -> tuple[int, int]:
        return await self._read(event_log.event_bounds)

    async def sweep(self, ask: SweepAsk) -> SweepResult:
        return await self._write(lambda u: event_log.sweep(u, ask))
