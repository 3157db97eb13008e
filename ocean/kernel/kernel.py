"""The kernel's verbs, thin: check what the caller says, ask the store, or run the loop."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Unpack

from ocean.clog.clog import Clog, Registry
from ocean.kernel.arguments import (
    UNSET,
    RunOptions,
    checked_caller,
    checked_count,
    new_run,
    new_signal,
    optional_id,
    request_of,
)
from ocean.kernel.direct_calls import DirectCall, answered
from ocean.kernel.leasing import Leasing
from ocean.kernel.locks import LockKeeper
from ocean.kernel.metrics import Observations
from ocean.kernel.store import Request, RowsAsk, Store
from ocean.kernel.tick_run import Crew, commit_or_time
from ocean.kernel.verbs.admin import Operating
from ocean.kernel.verbs.advance import Poking
from ocean.kernel.verbs.leases import Lending
from ocean.kernel.verbs.webhooks import Receiving
from ocean.state.claim_order import FAIR_EVERY
from ocean.state.clock import Clock
from ocean.state.effects import RowKey
from ocean.state.eligibility import Explanation, Hold, holds, is_asleep, with_words
from ocean.state.errors import InvalidValue, ResultTimeout, RunFailed, RunNotFound
from ocean.state.ids import IdSource, even_roll
from ocean.state.ids import instance_id as new_instance_id
from ocean.state.records import (
    GENERIC_VERBS,
    AdvanceResult,
    Caller,
    ClogRecord,
    Run,
    RunInfo,
    RunStatus,
    SignalReceipt,
)
from ocean.state.transitions import due_at
from ocean.state.values import checked_id, decode, encode
from ocean.tools.author import Tool, ToolBox
from ocean.tools.builtin import ToolSpec
from ocean.tools.credentials import Credentials
from ocean.tools.fetch import FetchRequest, FetchResponse
from ocean.tools.outside import Reach, RealReach
from ocean.tools.registry import ToolFormat, described

DEFAULT_LOCK_MS = 30_000
POKE_MS = 1_000


class Kernel(Operating, Receiving, Lending, Poking):
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
        reach: Reach | None = None,
        tools: Iterable[Tool | ToolBox] = (),
        deny_tools: Collection[str] = (),
        credentials: Credentials | None = None,
    ) -> None:
        checked_count(lock_ms, "lock_ms", least=3)
        optional_id(instance_id, "instance_id")
        self._store = store
        self._clock = clock
        self._ids = IdSource()
        self._registry = Registry(clogs, tools, deny_tools, credentials)
        self.instance_id = instance_id or new_instance_id()
        shortest = min([lock_ms, *(clog.lock_ms for clog in self._registry if clog.lock_ms)])
        keeper = LockKeeper(store, clock, shortest)
        self.observed = Observations(clock, store.batch_sizes, [clog.clog_id for clog in self._registry])
        reach = reach or RealReach(private_hosts)
        self._crew = Crew(store, self._registry, clock, keeper, self.instance_id, lock_ms, reach, self.observed)
        self._leasing = Leasing(store, clock, self.observed)
        # A process that makes few claims must not always begin with the urgent slots.
        self._slot = int(even_roll(self.instance_id) * FAIR_EVERY)

    @property
    def clock(self) -> Clock:
        """The store's time."""
        return self._clock

    @property
    def clogs(self) -> tuple[Clog, ...]:
        """The clogs of this instance."""
        return tuple(self._registry)

    async def start(self) -> None:
        """Tell the database which clogs this instance has. Having none, it has nothing to write."""
        if not list(self._registry):
            return
        await self._store.register_clogs(
            [
                ClogRecord(
                    clog.clog_id,
                    clog.version,
                    clog.has_on_end,
                    has_handler=clog.handler is not None,
                    external=clog.external,
                    takes_all_inputs=clog.takes_all_inputs,
                    allows=_allowed(clog),
                )
                for clog in self._registry
            ]
        )

    async def close(self) -> None:
        self._crew.keeper.close()
        await self._store.close()

    def list_tools(self, clog_id: str | None = None) -> list[ToolSpec]:
        """The tools of this instance, the house's first; or those that the clog can invoke by name."""
        toolset = self._registry.toolset
        return toolset.specs() if clog_id is None else toolset.usable(self._registry.get(clog_id))

    def tool_schemas(self, format: ToolFormat = "openai", *, clog_id: str | None = None) -> list[dict[str, Any]]:
        """The same in the form that a model's API takes; without those that cannot be invoked here."""
        specs = (spec for spec in self.list_tools(clog_id) if spec.input is not None and spec.denied is None)
        return [described(spec, format) for spec in specs]

    async def list_clogs(self) -> list[ClogRecord]:
        """Every clog that an instance has ever registered."""
        return await self._store.list_clogs()

    async def allowed_verbs(self, clog_id: str) -> tuple[str, ...] | None:
        """What the clog allows the generic routes and commands; None if nobody has ever registered it."""
        if clog_id in self._registry:
            return _allowed(self._registry.get(clog_id))
        return next((clog.allows for clog in await self.list_clogs() if clog.clog_id == clog_id), None)

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

    async def get_run(self, run_id: str) -> RunInfo | None:
        """The run as it is now; None if there is none."""
        return await self._store.get_run(checked_id(run_id, "run_id"))

    def new_id(self) -> str:
        """A UUIDv7 that nobody else has, as a run gets that is given none."""
        return self._ids.new(self._clock.now())

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
            if until <= self._clock.now():
                raise ResultTimeout(f"run {run_id} is {run.status} after {timeout_ms} ms; it goes on", run_id=run_id)
            await self._moved(run, seen, until)

    async def settle(self, run_id: str, *, timeout_ms: int = 1_000) -> RunInfo:
        """Poke until the run `is_settled`: idle, waiting or ended, with nothing due. Else as it is after that time.

        A handler that has begun goes on to its own limit, and this waits for it.
        """
        until = self._clock.now() + checked_count(timeout_ms, "timeout_ms")
        while True:
            seen = self._store.commits_seen()
            run = await self._require(run_id)
            if run.is_settled(self._clock.now()) or until <= self._clock.now():
                return run
            await self._moved(run, seen, until)

    async def _moved(self, run: RunInfo, seen: int, until: int) -> None:
        """Poke; or wait for a commit or for the time, if the run is at work, or nothing has come of it."""
        now, due = self._clock.now(), run.due_at
        if run.status is not RunStatus.ACTIVE or due is None or due <= now:
            poked = await self._poked(run, until - now)
            if poked.outcomes:
                return
            # Also when only another run is due then: this one may wait for it, as a parent or behind a key.
            now = self._clock.now()
            due = max(min(time for time in (due, poked.next_wake_at, until) if time is not None), now + 50)
        await commit_or_time(self._store, self._clock, seen, max(min(until, due) - now, 0))

    async def _poked(self, run: RunInfo, budget_ms: int) -> AdvanceResult:
        """Move the run, or else whatever it may be waiting for."""
        own = await self.advance(run_id=run.run_id, budget_ms=budget_ms, source="wait")
        return own if own.outcomes else await self.advance(budget_ms=min(budget_ms, POKE_MS), source="wait")

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
        request = request_of(request_key, "call", [run_id, clog_id, session_id, method, decode(text)])
        run = await self._store.get_run(checked_id(run_id, "run_id")) if run_id is not None else None
        if run is None and run_id is not None:
            return await self._answered_before(run_id, request)
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
            request=request,
            seed=request_key or self._ids.new(self._clock.now()),
            reach=self._crew.reach,
            observed=self.observed,
        )
        return await call.run_to_end()

    async def _answered_before(self, run_id: str, request: Request | None) -> Any:
        """What was answered stays answered, as with every other verb, though the run is gone."""
        stored = await self._store.stored_answer(request) if request is not None else None
        if stored is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return answered(stored)

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_ms: int = 10_000,
    ) -> FetchResponse:
        """An HTTP request by the rules of `tick.fetch`, for what is no tick: a worker, a route."""
        return await self._crew.reach.fetch(FetchRequest(url, method, dict(headers or {}), body, timeout_ms))

    async def explain(self, run_id: str) -> Explanation:
        """Why the run is not moving, by the claim's own rules. No holds: the next `advance` here takes it."""
        found = await self._store.survey(checked_id(run_id, "run_id"), self._crew.claimable(None))
        if found is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        run, around = found
        said = holds(run, around, self._clock.now())
        return Explanation(run_id, run.status, due_at(run), await self._told_by_its_clog(run, said))

    async def _told_by_its_clog(self, run: Run, said: tuple[Hold, ...]) -> tuple[Hold, ...]:
        """What sleeps is explained by the clog too, if it is here and says what its runs wait for."""
        clog = self._registry.get(run.clog_id) if run.clog_id in self._registry else None
        if clog is None or clog.teller is None or not any(is_asleep(hold) for hold in said):
            return said
        key = RowKey("run", run.clog_id, run_id=run.run_id)
        answer = await self._store.read_rows(RowsAsk(run.clog_id, run.session_id, run.run_id, (key,)))
        return with_words(said, clog.tells_of(answer.rows[key].text))


def _allowed(clog: Clog) -> tuple[str, ...]:
    return tuple(verb for verb in GENERIC_VERBS if verb in clog.allows)
