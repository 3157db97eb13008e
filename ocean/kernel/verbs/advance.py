"""Pokes, and what those who poke wait for."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace

import anyio

from ocean.clog.clog import Registry
from ocean.kernel.advance import Advance
from ocean.kernel.arguments import checked_count, checked_flag, checked_names
from ocean.kernel.dry_run import dry_run_tick
from ocean.kernel.metrics import Observations
from ocean.kernel.poke_sources import PokeSource, checked_source
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimAsk, ClaimOrder
from ocean.kernel.tick_run import Runtime, commit_or_time
from ocean.state.claim_order import FAIR_EVERY
from ocean.state.clock import Clock
from ocean.state.dry_run_result import DryRun
from ocean.state.errors import InvalidValue, RunNotFound
from ocean.state.records import AdvanceResult, Agenda, Claim, RunInfo, TickResult
from ocean.state.values import checked_id

DEFAULT_CONCURRENCY = 32


class Poking:
    instance_id: str
    observed: Observations
    _store: Store
    _clock: Clock
    _registry: Registry
    _runtime: Runtime
    _slot: int

    @property
    def at_work(self) -> int:
        """How many ticks have their handlers called here just now."""
        return self._runtime.keeper.count

    async def advance(
        self,
        *,
        budget_ms: int = 1_000,
        hard_ms: int | None = None,
        max_ticks: int | None = None,
        clog_ids: Collection[str] | None = None,
        run_id: str | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        dry_run: bool = False,
        source: PokeSource = "python",
    ) -> AdvanceResult:
        """Do what is due. `budget_ms` bounds claiming; `hard_ms` also stops handlers and gives their runs back.

        `dry_run=True` shows the next tick of the run named and changes nothing. `source` says who pokes.
        """
        checked_count(budget_ms, "budget_ms")
        checked_count(concurrency, "concurrency", least=1)
        checked_source(source)
        for name, value in (("hard_ms", hard_ms), ("max_ticks", max_ticks)):
            if value is not None:
                checked_count(value, name)
        for clog_id in checked_names(clog_ids, "clog_ids"):
            self._registry.get(clog_id)
        if run_id is not None:
            await self._require(run_id)
        if checked_flag(dry_run, "dry_run"):
            return await self._dry_run(run_id, max_ticks, clog_ids, hard_ms)
        until = self._clock.now() + (budget_ms if hard_ms is None else min(budget_ms, hard_ms))
        advance = Advance(self._runtime, self._ask(clog_ids, run_id), until, max_ticks, concurrency, source)
        return await self._done(advance, source, run_id, hard_ms)

    def _ask(self, clog_ids: Collection[str] | None, run_id: str | None) -> ClaimAsk:
        return ClaimAsk(self._runtime.claimable(clog_ids), self.instance_id, 0, self._slot, run_id)

    async def _done(
        self,
        advance: Advance,
        source: PokeSource,
        run_id: str | None = None,
        hard_ms: int | None = None,
    ) -> AdvanceResult:
        with self.observed.poking(source, run_id), self._limit(hard_ms):
            await advance.run()
        self._slot = (self._slot + advance.claims) % FAIR_EVERY
        return await self._advanced(advance.results)

    async def _dry_run(
        self, run_id: str | None, max_ticks: int | None, clog_ids: Collection[str] | None, hard_ms: int | None
    ) -> AdvanceResult:
        if run_id is None:
            raise InvalidValue("a dry run shows the next tick of one run; name it with run_id")
        if max_ticks is not None or clog_ids is not None:
            raise InvalidValue("max_ticks and clog_ids choose what is due; a dry run has its run_id, leave them out")
        return await self._advanced([], await dry_run_tick(self._runtime, run_id, hard_ms))

    async def agenda(self) -> Agenda:
        """What is due for the clogs of this instance, without doing any of it."""
        return await self._store.agenda(self._runtime.claimable(None).keys())

    async def _advanced(self, results: list[TickResult], shown: DryRun | None = None) -> AdvanceResult:
        agenda = await self.agenda()
        return AdvanceResult(
            tuple(results),
            agenda.due_now,
            agenda.next_wake_at,
            agenda.oldest_due_age_ms,
            agenda.unclaimable,
            shown,
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

    def commits_seen(self) -> int:
        """A number that rises with every commit this process has made or noticed; for `next_change`."""
        return self._store.commits_seen()

    async def next_change(self, seen: int, *, wait_ms: int, look_ms: int = 100) -> int:
        """Wait until `commits_seen` is above `seen`, at most `wait_ms`; answers what it is then."""
        await commit_or_time(self._store, self._clock, seen, wait_ms, look_ms)
        return self._store.commits_seen()

    async def _require(self, run_id: str) -> RunInfo:
        run = await self._store.get_run(checked_id(run_id, "run_id"))
        if run is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run


class Standing:
    """What a ticker needs of an instance besides: to wait for room, and claims that are made ahead, by the very
    transaction that makes something due."""

    def __init__(self, instance: Poking) -> None:
        self._instance = instance

    async def fewer_at_work(self, most: int) -> None:
        """Wait until fewer than so many are."""
        await self._instance._runtime.keeper.fewer_than(most)

    def order(
        self, limit: int, begun: Callable[[Advance], None], *, budget_ms: int, source: PokeSource
    ) -> ClaimOrder | None:
        """Have the next that becomes due claimed, and its handlers called before anybody could poke; `begun` is told.

        `go_on` is to follow, or the poke is to be abandoned. None if the store takes no orders.
        """
        instance, here = self._instance, copy_context()
        ask = replace(instance._ask(None, None), limit=limit, slot=instance._slot)

        def begin(claims: Sequence[Claim]) -> None:
            advance = Advance(instance._runtime, ask, instance._clock.now() + budget_ms, None, limit, source)
            advance.begin(claims)
            begun(advance)

        # A handler is called in the context of whoever ordered, not of whoever made something due.
        return instance._store.order_claims(ask, lambda claims: here.run(begin, claims))

    async def go_on(self, advance: Advance, source: PokeSource) -> AdvanceResult:
        """As `advance`, from there."""
        return await self._instance._done(advance, source)
