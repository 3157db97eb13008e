"""The store's verbs about ticks: claims, locks, rows, steps, commits; direct calls and counters."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict

from ocean.kernel.store.claims import (
    ClaimAsk,
    ClaimOrder,
    NotClaimable,
    Renewal,
    RowsAnswer,
    RowsAsk,
    TickAnswer,
    TickCommit,
)
from ocean.kernel.store.events import StepStreamed
from ocean.kernel.store.runs import Behind, CallCommit, CallConflict, CallDone, Request
from ocean.state.counters import Take, Taken
from ocean.state.effects import NewEvent, RowKey
from ocean.state.errors import LockLost
from ocean.state.records import Agenda, Claim, Lock, RunStatus
from ocean.state.transitions import refuse_unless_held, renewed
from ocean.state.values import decode, encode
from ocean.stores.shared import claim_plan
from ocean.stores.sqlite import claiming, committing, counters, crashes, storage
from ocean.stores.sqlite.engine import executor
from ocean.stores.sqlite.engine.executor import SqliteClaimOrder, UnitExecutor
from ocean.stores.sqlite.engine.unit_of_work import Unit


class SqliteClaimStore(UnitExecutor):
    """Verbs about ticks, direct calls and counters."""

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> ClaimOrder:
        return SqliteClaimOrder(self._transactions, self._unit(lambda u: claiming.claim_woken(u, ask)), claimed)

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        for _ in range(claim_plan.MOST_ROUNDS):
            # A transaction is about to be made in any case: no need to read first.
            is_due = self._transactions.is_about_to_write
            if not is_due and not ask.piggyback:
                is_due = await self._read(lambda u: claiming.has_work(u, ask))
            claims = await self._write(lambda u: claiming.claim_due(u, ask)) if is_due else []
            if claims or not is_due:
                return claims
        return []

    async def preview_claim(self, ask: ClaimAsk) -> Claim | NotClaimable:
        return await self._read(lambda u: claiming.preview_claim(u, ask))

    async def agenda(self, clog_ids: Collection[str]) -> Agenda:
        return await self._read(lambda u: claiming.agenda(u, frozenset(clog_ids)))

    async def read_rows(self, ask: RowsAsk) -> RowsAnswer:
        return await self._read(lambda u: storage.read_rows(u, ask))

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        return await self._write(lambda u: committing.commit_tick(u, commit))

    async def take_turn(self, lock: Lock, keys: Sequence[RowKey]) -> bool:
        def act(u: Unit) -> bool:
            refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id, even_if_ending=True)
            return storage.take_turn(u, lock.run_id, lock.epoch, keys)

        return await self._write(act)

    async def give_back(self, lock: Lock, tick: int, *, counts: bool = True) -> RunStatus | None:
        try:
            return await self._write(lambda u: committing.give_back(u, lock, tick, counts=counts))
        except LockLost:
            return None

    def renew_locks(self, locks: Sequence[Lock]) -> Renewal:
        def act(u: Unit) -> Renewal:
            renewal, holders = Renewal(set(), set()), set()
            for lock in locks:
                run = u.find(lock.run_id)
                if run is None or run.status is not RunStatus.ACTIVE or run.lock_epoch != lock.epoch:
                    renewal.lost.add(lock)
                    continue
                u.save(renewed(run, lock.lock_ms, u.now))
                holders.add(run.locked_by)
                if run.stop_by is not None:
                    renewal.ending.add(lock)
            for holder in holders:
                u.do("instance_seen", instance_id=holder, now=u.now)
            return renewal

        return self._transactions.write_blocking(self._unit(act))

    async def call_apart(self, locks: Sequence[Lock]) -> set[Lock]:
        return await self._write(lambda u: crashes.call_apart(u, locks))

    async def append_streamed(self, lock: Lock, tick: int, call: int, events: Sequence[NewEvent]) -> None:
        def act(u: Unit) -> None:
            refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id, even_if_ending=True)
            _append_streamed(u, lock.run_id, tick, call, events)

        await self._write(act)

    async def read_step(self, run_id: str, tick: int, name: str) -> str | None:
        def act(u: Unit) -> str | None:
            row = u.one("get_step", run_id=run_id, tick=tick, name=name)
            return row["result"] if row else None

        return await self._read(act)

    async def store_step(
        self, lock: Lock, tick: int, name: str, result: str, streamed: StepStreamed | None = None
    ) -> str:
        def act(u: Unit) -> str:
            refuse_unless_held(u.find(lock.run_id), lock.epoch, lock.run_id, even_if_ending=True)
            first = u.one("get_step", run_id=lock.run_id, tick=tick, name=name)
            if first is not None:
                return str(first["result"])
            u.later("insert_step", lock.run_id, run_id=lock.run_id, tick=tick, name=name, result=result, now=u.now)
            if streamed is not None:
                _append_streamed(u, lock.run_id, streamed.tick, streamed.call, [streamed.event])
            return result

        return await self._write(act)

    async def commit_call(self, commit: CallCommit) -> CallDone | CallConflict | Behind:
        def act(u: Unit) -> CallDone | CallConflict | Behind:
            request = commit.request
            stored = executor.stored_answer(u, request) if request else None
            if stored is not None:
                return CallDone(stored, is_repeated=True)
            answer = committing.commit_call(u, commit)
            if request is not None and isinstance(answer, CallDone):
                executor.keep_answer(u, request, answer.answer)
            return answer

        return await self._write(act)

    async def look_at_counter(self, takes: Sequence[Take]) -> Taken:
        return await self._read(lambda u: counters.preview(u, takes))

    async def take(self, take: Take, request: Request | None) -> Taken:
        def act(u: Unit) -> Taken:
            stored = executor.stored_answer(u, request) if request else None
            if stored is not None:
                return Taken(**decode(stored))
            taken = counters.take(u, take)
            if request is not None and taken:
                executor.keep_answer(u, request, encode(asdict(taken)))
            return taken

        return await self._write(act)

    async def reset_counter(self, key: str, request: Request | None) -> bool:
        def act(u: Unit) -> bool:
            return executor.once(u, request, bool, lambda: u.do("reset_counter", key=key) > 0)

        return await self._write(act)


def _append_streamed(u: Unit, run_id: str, tick: int, call: int, events: Sequence[NewEvent]) -> None:
    tick_row = u.one("get_tick", run_id=run_id, tick=tick)
    caused_by = tick_row["caused_by"] if tick_row else None
    for event in events:
        u.event(
            run_id,
            event.type,
            None,
            text=event.payload,
            tick=tick,
            call=call,
            clog_id=event.clog_id,
            caused_by=caused_by,
            step=event.step,
        )
