"""Decide when this process pokes, so that one poke serves everything in it that wants due work done.

Five parts of a process want that: a ticker, a request after its response, a watched run, `result` and `settle`, and a
request that waits for its run (`?waitMs`). Each of them asks the coordinator of its instance:

* While a ticker is running and has room, it claims whatever becomes due. The others start no poke; they wait for it.
* Otherwise a poke of everything has a turn, one at a time. Pokes asked for during a turn become one further poke.
* A watched or awaited run that is due is left to the turn in progress, if there is one. Else it is poked alone.

How long each of them then waits is its own business: a watcher waits for events, `result` for commits.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context

import anyio

from ocean.kernel.advance import Advance
from ocean.kernel.arguments import checked_count
from ocean.kernel.poke_sources import PokeSource
from ocean.kernel.runtime import Runtime
from ocean.kernel.store.claims import ClaimAsk, ClaimOrder
from ocean.state.eligibility import FAIR_EVERY
from ocean.state.records import Claim, TickResult

DEFAULT_CONCURRENCY = 32
TICKER_MS = 1_000
"""How long a run that is due is left to a ticker before a watcher or waiter looks at it again."""


class Coordinator:
    """The pokes of one instance: how they are made, the turn in progress, the tickers, and the awaited runs."""

    def __init__(self, runtime: Runtime, slot: int) -> None:
        self._runtime = runtime
        self.slot = slot
        """How many claims this instance has made, modulo `FAIR_EVERY`."""
        self._tickers: list[Callable[[], bool]] = []
        self._turn: Advance | None = None
        self._is_over = anyio.Event()
        self._is_wanted = False
        self._awaited: dict[str, list[anyio.Event]] = {}

    def new_poke(
        self,
        budget_ms: int,
        source: PokeSource,
        *,
        run_id: str | None = None,
        clog_ids: Collection[str] | None = None,
        max_ticks: int | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
    ) -> Advance:
        """A poke of the due runs of all clogs of this instance, of some of them, or of one run."""
        ask = ClaimAsk(self._runtime.claimable(clog_ids), self._runtime.instance_id, 0, self.slot, run_id)
        until = self._runtime.clock.now() + budget_ms
        return Advance(self._runtime, ask, until, max_ticks, concurrency, source, self._tick_is_over)

    async def perform(self, poke: Advance, hard_ms: int | None = None) -> list[TickResult]:
        """Run a poke to its end, or for `hard_ms` at most, and count it."""
        with self._runtime.observed.poking(poke.source, poke.ask.run_id), self._limit(poke, hard_ms):
            if not poke.has_begun:
                await self._runtime.instances.before_poke()
            await poke.run()
        self.slot = (self.slot + poke.claims) % FAIR_EVERY
        return poke.results

    @contextmanager
    def _limit(self, poke: Advance, ms: int | None) -> Iterator[None]:
        with anyio.CancelScope() as scope:

            def end() -> None:
                poke.is_out_of_time = True
                scope.cancel()

            cancel = self._runtime.clock.call_later(ms, end) if ms is not None else None
            try:
                yield
            finally:
                if cancel is not None:
                    cancel()

    @property
    def has_ticker(self) -> bool:
        """Whether a ticker of this process claims whatever becomes due."""
        return any(takes_due() for takes_due in self._tickers)

    @contextmanager
    def ticking(self, takes_due: Callable[[], bool]) -> Iterator[None]:
        """Register a ticker for as long as the block lasts; `takes_due` returns whether it has room for due work."""
        self._tickers.append(takes_due)
        try:
            yield
        finally:
            self._tickers.remove(takes_due)

    def claim_ahead(
        self, limit: int, begun: Callable[[Advance], None], budget_ms: int, source: PokeSource
    ) -> ClaimOrder | None:
        """Have the next transaction that makes something due claim it too, and call its handlers at once.

        `begun` gets the poke, which the caller must then `perform` or `abandon`. None if the store cannot do this.
        """
        here = copy_context()

        def begin(claims: Sequence[Claim]) -> None:
            poke = self.new_poke(budget_ms, source, concurrency=limit)
            poke.begin(claims)
            begun(poke)

        # Handlers run in the context of the ticker, not in that of the caller whose transaction made them due.
        ask = ClaimAsk(self._runtime.claimable(None), self._runtime.instance_id, limit, self.slot)
        return self._runtime.store.order_claims(ask, lambda claims: here.run(begin, claims))

    async def room_for_ticks(self, most: int) -> None:
        """Wait until fewer than `most` ticks have their handlers called here."""
        await self._runtime.keeper.fewer_than(most)

    async def poke_everything(self, budget_ms: int, source: PokeSource) -> None:
        """Do what is due, unless a ticker does. Calls during another call's turn become one further poke.

        A turn lasts `budget_ms` at most: a handler that takes longer goes on without holding up other pokes.
        """
        checked_count(budget_ms, "budget_ms")
        if self.has_ticker:
            return
        if self._turn is not None:
            if self._is_wanted:
                return
            self._is_wanted = True
            try:
                while self._turn is not None:
                    await self._is_over.wait()
            finally:
                self._is_wanted = False
        turn = self._turn = self.new_poke(budget_ms, source)
        self._is_over = anyio.Event()
        cancel = self._runtime.clock.call_later(budget_ms, lambda: self._end(turn))
        try:
            await self.perform(turn)
        finally:
            cancel()
            self._end(turn)

    def _end(self, turn: Advance) -> None:
        if self._turn is turn:
            self._turn = None
            self._is_over.set()
            for events in self._awaited.values():
                for event in events:
                    event.set()

    async def turn_is_over(self) -> None:
        """Wait for the turn in progress, if there is one: it calls what is due."""
        if self._turn is not None and self._turn.may_claim:
            await self._is_over.wait()

    async def move(self, run_id: str, budget_ms: int, source: PokeSource, seen: int | None = None) -> bool:
        """Have a due run called: by the ticker, by the turn in progress, or by a poke of its own.

        Returns False if it was not called, and there is no reason to look at it again soon. `seen` is `commits_seen`
        from before the caller looked at the run: if there was a commit since, the caller must look again.
        """
        if self.has_ticker:
            return await self._is_called(run_id, min(budget_ms, TICKER_MS), seen)
        if self._turn is not None and self._turn.may_claim:
            await self._is_called(run_id, budget_ms, seen)
            return True
        return bool(await self.perform(self.new_poke(budget_ms, source, run_id=run_id)))

    async def _is_called(self, run_id: str, ms: int, seen: int | None) -> bool:
        """Wait for a tick of the run or the end of the turn, at most `ms`. False if the time is over."""
        if seen is not None and self._runtime.store.commits_seen() != seen:
            return True
        event = anyio.Event()
        waiting = self._awaited.setdefault(run_id, [])
        waiting.append(event)
        with anyio.CancelScope() as scope:
            cancel = self._runtime.clock.call_later(ms, scope.cancel)
            try:
                await event.wait()
            finally:
                cancel()
                waiting.remove(event)
                if not waiting:
                    del self._awaited[run_id]
        return event.is_set()

    def _tick_is_over(self, result: TickResult) -> None:
        """Wake those who wait for the run: its tick has been committed."""
        for event in self._awaited.get(result.run_id, ()):
            event.set()
