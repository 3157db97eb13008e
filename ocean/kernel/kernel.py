"""The kernel's verbs, thin: check what the caller says, ask the store, or run the loop."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import anyio

from ocean.kernel.advancing import Advance, Crew, commit_or_time
from ocean.kernel.arguments import (
    UNSET,
    RunOptions,
    checked_caller,
    checked_count,
    checked_limit,
    checked_names,
    new_run,
    new_signal,
    optional_id,
    request_of,
)
from ocean.kernel.bulk import BulkVerbs
from ocean.kernel.clock import Clock
from ocean.kernel.clog import Clog, Registry
from ocean.kernel.direct_calls import DirectCall
from ocean.kernel.eligibility import Explanation, holds
from ocean.kernel.errors import InvalidValue, ResultTimeout, RunFailed, RunNotFound
from ocean.kernel.finding import RunOrder, RunQuery, is_descending, run_filter
from ocean.kernel.ids import IdSource, even_roll
from ocean.kernel.ids import instance_id as new_instance_id
from ocean.kernel.lanes import FAIR_EVERY
from ocean.kernel.locks import LockKeeper
from ocean.kernel.records import (
    AdvanceResult,
    Caller,
    ClogRecord,
    Input,
    RunCount,
    RunInfo,
    RunPage,
    RunStatus,
    SignalReceipt,
    TickInfo,
)
from ocean.kernel.store import ClaimAsk, Store
from ocean.kernel.tools import TOOLS, ToolSpec, check_tool_names
from ocean.kernel.transitions import due_at
from ocean.kernel.values import checked_id, decode, encode

DEFAULT_LOCK_MS = 30_000
DEFAULT_CONCURRENCY = 32
POKE_MS = 1_000


class Kernel(BulkVerbs):
    """One instance. Any number of them, in any number of processes, may share a database."""

    def __init__(
        self,
        store: Store,
        clogs: Iterable[Clog],
        clock: Clock,
        *,
        lock_ms: int = DEFAULT_LOCK_MS,
        instance_id: str | None = None,
        private_hosts: Collection[str] = (),
    ) -> None:
        checked_count(lock_ms, "lock_ms", least=3)
        optional_id(instance_id, "instance_id")
        self._store = store
        self._clock = clock
        self._ids = IdSource()
        self._registry = Registry(clogs)
        for clog in self._registry:
            check_tool_names(clog)
        self.instance_id = instance_id or new_instance_id()
        shortest = min([lock_ms, *(clog.lock_ms for clog in self._registry if clog.lock_ms)])
        keeper = LockKeeper(store, clock, shortest)
        self._crew = Crew(store, self._registry, clock, keeper, self.instance_id, lock_ms, tuple(private_hosts))
        # A process that makes few claims must not always begin with the urgent slots.
        self._slot = int(even_roll(self.instance_id) * FAIR_EVERY)

    async def start(self) -> None:
        """Tell the database which clogs this instance has."""
        await self._store.register_clogs(
            [
                ClogRecord(clog.clog_id, clog.version, clog.has_on_end, has_handler=clog.handler is not None)
                for clog in self._registry
            ]
        )

    async def close(self) -> None:
        self._crew.keeper.close()
        await self._store.close()

    def list_tools(self) -> list[ToolSpec]:
        return list(TOOLS.values())

    async def list_clogs(self) -> list[ClogRecord]:
        """Every clog that an instance has ever registered."""
        return await self._store.list_clogs()

    async def create_run(
        self,
        *,
        session_id: str,
        clog_id: str,
        input: Any = UNSET,
        run_id: str | None = None,
        actor: str | None = None,
        request_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> RunInfo:
        """Create a run: pending with `input`, idle without. The same id or dedupe key answers the first run."""
        new = new_run(
            run_id=self._ids.new(self._clock.now()) if run_id is None else run_id,
            is_id_given=run_id is not None,
            session_id=session_id,
            clog_id=clog_id,
            input=input,
            actor=actor,
            **options,
        )
        request = request_of(request_key, "create_run", [new.body_hash, run_id, new.dedupe_key, new.dedupe_ms])
        return await self._store.create_run(new, request)

    async def signal(
        self,
        run_id: str,
        input: Any = UNSET,
        *,
        signal_id: str | None = None,
        deliver_at: int | None = None,
        if_idle: bool = False,
        actor: str | None = None,
        request_key: str | None = None,
    ) -> SignalReceipt:
        """Append an input to a run's inbox. Once this returns, no crash loses it."""
        signal = new_signal(run_id, input, signal_id=signal_id, deliver_at=deliver_at, if_idle=if_idle, actor=actor)
        request = request_of(request_key, "signal", [run_id, signal.body_hash, signal_id, if_idle])
        return await self._store.deliver_signal(signal, request)

    async def advance(
        self,
        *,
        budget_ms: int = 1_000,
        hard_ms: int | None = None,
        max_ticks: int | None = None,
        clog_ids: Collection[str] | None = None,
        run_id: str | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> AdvanceResult:
        """Do what is due. `budget_ms` bounds claiming; `hard_ms` also stops handlers and gives their runs back."""
        checked_count(budget_ms, "budget_ms")
        checked_count(concurrency, "concurrency", least=1)
        for name, value in (("hard_ms", hard_ms), ("max_ticks", max_ticks)):
            if value is not None:
                checked_count(value, name)
        for clog_id in checked_names(clog_ids, "clog_ids"):
            self._registry.get(clog_id)
        if run_id is not None:
            await self._require(run_id)
        now = self._clock.now()
        budget_ms = budget_ms if hard_ms is None else min(budget_ms, hard_ms)
        ask = ClaimAsk(self._crew.claimable(clog_ids), self.instance_id, 0, self._slot, run_id)
        advance = Advance(self._crew, ask, now + budget_ms, max_ticks, concurrency)
        with self._limit(hard_ms):
            await advance.run()
        self._slot = (self._slot + advance.claims) % FAIR_EVERY
        agenda = await self._store.agenda(self._crew.claimable(None).keys())
        return AdvanceResult(
            tuple(advance.results),
            agenda.due_now,
            agenda.next_wake_at,
            agenda.oldest_due_age_ms,
            agenda.unclaimable,
        )

    @contextmanager
    def _limit(self, ms: int | None) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            cancel = self._clock.call_later(ms, scope.cancel) if ms is not None else None
            try:
                yield
            finally:
                if cancel is not None:
                    cancel()

    async def get_run(self, run_id: str) -> RunInfo | None:
        return await self._store.get_run(checked_id(run_id, "run_id"))

    async def result(self, run_id: str, *, timeout_ms: int = 30_000) -> Any:
        """The run's output once it is done. Waits, and pokes meanwhile: the run, and what else is due here."""
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            seen = self._store.commits_seen()
            run = await self._require(run_id)
            if run.status is RunStatus.DONE:
                return run.output
            if run.status is RunStatus.FAILED:
                error = run.error or {}
                raise RunFailed(f"run {run_id} failed: {error.get('message')}", error, run_id=run_id)
            left = until - self._clock.now()
            if left <= 0:
                raise ResultTimeout(f"run {run_id} is {run.status} after {timeout_ms} ms; it goes on", run_id=run_id)
            if not await self._poked(run, left):
                due = run.due_at if run.due_at is not None else until
                wait = min(left, max(due - self._clock.now(), 50))
                await commit_or_time(self._store, self._clock, seen, wait)

    async def _poked(self, run: RunInfo, budget_ms: int) -> bool:
        """Move the run, or else whatever it may be waiting for; False if nothing here is due."""
        own = await self.advance(run_id=run.run_id, budget_ms=budget_ms)
        return bool(own.outcomes or (await self.advance(budget_ms=min(budget_ms, POKE_MS))).outcomes)

    async def call_clog(
        self,
        *,
        method: str,
        run_id: str | None = None,
        clog_id: str | None = None,
        session_id: str | None = None,
        payload: Any = None,
        caller: Caller | None = None,
        request_key: str | None = None,
    ) -> Any:
        """Call a clog's method and answer within this request: on a run, or on a clog and perhaps a session."""
        if run_id is None and clog_id is None:
            raise InvalidValue("call_clog needs a run_id, or a clog_id and perhaps a session_id")
        if run_id is not None and session_id is not None:
            raise InvalidValue("a call on a run has that run's session; leave session_id out")
        text = encode(payload, "payload")
        checked_id(method, "method")
        optional_id(session_id, "session_id")
        optional_id(clog_id, "clog_id")
        run = await self._require(run_id) if run_id is not None else None
        clog = self._registry.get(clog_id if clog_id is not None else run.clog_id if run else "")
        call = DirectCall(
            store=self._store,
            registry=self._registry,
            clock=self._clock,
            clog=clog,
            method=method,
            run=run,
            session_id=run.session_id if run else session_id or "",
            payload=text,
            caller=checked_caller(caller),
            request=request_of(request_key, "call", [run_id, clog.clog_id, session_id, method, decode(text)]),
            seed=request_key or self._ids.new(self._clock.now()),
            private_hosts=self._crew.private_hosts,
        )
        return await call.run_to_end()

    async def list_runs(
        self,
        *,
        order: RunOrder | None = None,
        limit: int = 100,
        cursor: str | None = None,
        **query: Unpack[RunQuery],
    ) -> RunPage:
        """A page of the runs that the query means."""
        where = run_filter(**query)
        return await self._store.list_runs(where, checked_limit(limit), cursor, is_descending(where, order))

    async def count_runs(self, *, cap: int = 10_000, **query: Unpack[RunQuery]) -> RunCount:
        """How many there are, counting no further than `cap`."""
        where = run_filter(**query)
        return await self._store.count_runs(where, checked_count(cap, "cap", least=1, most=1_000_000))

    async def list_ticks(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[TickInfo]:
        """The run's ticks in order; `after` is the last tick number already seen."""
        after = checked_count(after, "after")
        return await self._store.list_ticks(checked_id(run_id, "run_id"), after, checked_limit(limit))

    async def list_inputs(self, run_id: str, *, after: int = 0, limit: int = 100) -> list[Input]:
        """The run's inbox in order of arrival, delivered or not; `after` is the last number already seen."""
        after = checked_count(after, "after")
        return await self._store.list_inputs(checked_id(run_id, "run_id"), after, checked_limit(limit))

    async def explain(self, run_id: str) -> Explanation:
        """Why the run is not moving, by the claim's own rules. No holds: the next `advance` here takes it."""
        found = await self._store.run_and_clog(checked_id(run_id, "run_id"))
        if found is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        run, is_clog_paused = found
        is_here = run.clog_id in self._crew.claimable(None)
        found_holds = holds(run, is_here=is_here, is_clog_paused=is_clog_paused, now=self._clock.now())
        return Explanation(run_id, run.status, due_at(run), found_holds)

    async def cancel_run(
        self,
        run_id: str,
        *,
        reason: str | None = None,
        actor: str | None = None,
        request_key: str | None = None,
    ) -> RunInfo:
        """End a run as failed, code `cancelled`; a clog with `on_end` gets its last tick first."""
        if reason is not None:
            checked_id(reason, "reason", 4_000)
        request = request_of(request_key, "cancel_run", [checked_id(run_id, "run_id"), reason])
        return await self._store.cancel_run(run_id, reason, optional_id(actor, "actor"), request)

    async def retry_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """A new run with a failed one's input and options, linked by `retry_of`. Repeated, it answers the same run."""
        request = request_of(request_key, "retry_run", checked_id(run_id, "run_id"))
        return await self._store.retry_run(run_id, optional_id(actor, "actor"), request)

    async def pause_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        """Hold a run back: signals queue, direct calls work, a deadline still ends it."""
        request = request_of(request_key, "pause_run", checked_id(run_id, "run_id"))
        return await self._store.set_run_paused(run_id, True, optional_id(actor, "actor"), request)

    async def resume_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> RunInfo:
        request = request_of(request_key, "resume_run", checked_id(run_id, "run_id"))
        return await self._store.set_run_paused(run_id, False, optional_id(actor, "actor"), request)

    async def pause_clog(self, clog_id: str, *, actor: str | None = None, request_key: str | None = None) -> ClogRecord:
        """Hold back all runs of a clog, on every instance."""
        request = request_of(request_key, "pause_clog", checked_id(clog_id, "clog_id"))
        return await self._store.set_clog_paused(clog_id, True, optional_id(actor, "actor"), request)

    async def resume_clog(
        self, clog_id: str, *, actor: str | None = None, request_key: str | None = None
    ) -> ClogRecord:
        request = request_of(request_key, "resume_clog", checked_id(clog_id, "clog_id"))
        return await self._store.set_clog_paused(clog_id, False, optional_id(actor, "actor"), request)

    async def delete_run(self, run_id: str, *, actor: str | None = None, request_key: str | None = None) -> int:
        """Remove a run, its children and all their rows; answers how many runs went. Events stay."""
        request = request_of(request_key, "delete_run", checked_id(run_id, "run_id"))
        return await self._store.delete_run(run_id, optional_id(actor, "actor"), request)

    async def delete_session(self, session_id: str, *, actor: str | None = None, request_key: str | None = None) -> int:
        """Remove a session with all its runs and rows; answers how many runs went."""
        request = request_of(request_key, "delete_session", checked_id(session_id, "session_id"))
        return await self._store.delete_session(session_id, optional_id(actor, "actor"), request)

    async def _require(self, run_id: str) -> RunInfo:
        run = await self._store.get_run(checked_id(run_id, "run_id"))
        if run is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run
