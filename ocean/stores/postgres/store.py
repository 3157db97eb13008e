"""The `Store` protocol on PostgreSQL: the same units as on SQLite, run by an engine on copies of their rows."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

from ocean.kernel.clock import Clock
from ocean.kernel.filters import FeedFilter, RunFilter
from ocean.kernel.observing import Histogram
from ocean.kernel.records import Agenda, Claim, Event, RunCount, RunPage
from ocean.kernel.store import ClaimAsk, LeaseAsk, LeasedRun, RowsAnswer, RowsAsk, TickAnswer, TickCommit
from ocean.stores.postgres import listing
from ocean.stores.postgres.courier import Courier
from ocean.stores.postgres.engine import Crowd, Engine
from ocean.stores.postgres.hints import ALL_TURNS, hints
from ocean.stores.postgres.keeping import Keeping
from ocean.stores.postgres.link import Link
from ocean.stores.postgres.needs import Answer, need
from ocean.stores.postgres.options import options_from
from ocean.stores.postgres.unit import RemoteUnit
from ocean.stores.postgres.waking import Waking
from ocean.stores.sqlite import claiming, committing, leasing, storage
from ocean.stores.sqlite.lease_verbs import MOST_ROUNDS
from ocean.stores.sqlite.unit import Unit
from ocean.stores.verbs import UnitStore

T = TypeVar("T")

AGENDA = (need("clogs"), need("lanes"), need("owed"))


class PostgresStore(UnitStore):
    def __init__(self, url: str, clock: Clock, *, is_test: bool = False) -> None:
        options = options_from(url)
        self.link = Link(options, clock, is_test=is_test)
        self._waking = Waking(options, self.link)
        self._courier = Courier(replace(options, pool=2), clock)
        self.engine = Engine(self.link, self._waking.noticed, self._courier.queue_up)
        self._keeping = Keeping(self.link)
        self._claimers = Crowd()

    @property
    def batch_sizes(self) -> Histogram:
        return self.engine.batch_sizes

    @property
    def clock(self) -> Clock:
        """The server's time, as well as it is known here."""
        return self.link.server_clock

    async def open(self) -> None:
        await self.link.open()
        self._waking.open()

    async def close(self) -> None:
        await self._waking.close()
        self._courier.close()
        await self.link.close()
        self.engine.close()

    def commits_seen(self) -> int:
        return self._waking.commits_seen()

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        return await self._waking.next_commit(seen, look_ms)

    async def _write(self, act: Callable[[Unit], T], about: Any = None) -> T:
        return await self.engine.perform(act, hints(about))

    async def _read(self, act: Callable[[Unit], T], about: Any = None) -> T:
        return await self.engine.perform(act, hints(about))

    def _write_blocking(self, act: Callable[[Unit], T], about: Any = None) -> T:
        self.link.check_open()
        return self._courier.perform(act, hints(about))

    async def claim_due(self, ask: ClaimAsk) -> list[Claim]:
        def look_and_claim(u: Unit) -> list[Claim] | None:
            return claiming.claim_due(u, ask) if claiming.has_work(u, ask) else None

        for _ in range(MOST_ROUNDS):
            claims = await self.engine.perform(look_and_claim, hints(ask), after=self._keeping, crowd=self._claimers)
            if claims is None or claims:
                return claims or []
        return []

    async def read_rows(self, ask: RowsAsk) -> RowsAnswer:
        if not self._keeping.has(ask):
            return await super().read_rows(ask)
        found: list[Answer] = []

        def read(u: Unit) -> RowsAnswer:
            answer = storage.read_rows(u, ask)
            assert isinstance(u, RemoteUnit)
            found[:] = u.known
            return answer

        answer = await self.engine.perform(read, [*hints(ask), ALL_TURNS])
        self._keeping.add(ask.run_id, found)
        return answer

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        start = self._keeping.start(commit)
        return await self.engine.perform(lambda u: committing.commit_tick(u, commit), hints(commit), start)

    async def agenda(self, clog_ids: Collection[str]) -> Agenda:
        mine = frozenset(clog_ids)
        return await self.engine.perform(lambda u: claiming.agenda(u, mine), AGENDA)

    async def lease_work(self, ask: LeaseAsk) -> list[LeasedRun]:
        def look_and_lease(u: Unit) -> list[LeasedRun] | None:
            return leasing.lease_work(u, ask) if claiming.has_work(u, leasing.claim_ask(u, ask)) else None

        for _ in range(MOST_ROUNDS):
            leased = await self._write(look_and_lease, ask)
            if leased is None or leased:
                return leased or []
        return []

    async def list_runs(self, where: RunFilter, limit: int, cursor: str | None, is_descending: bool) -> RunPage:
        run_ids, next_cursor = await listing.page(self.link, where, limit, cursor, is_descending)
        runs = await self._read(lambda u: listing.shown(u, run_ids))
        return RunPage(tuple(runs), next_cursor)

    async def count_runs(self, where: RunFilter, cap: int) -> RunCount:
        return await listing.count(self.link, where, cap)

    async def read_events(self, where: FeedFilter, after: int, limit: int) -> list[Event]:
        return await listing.read_events(self.link, where, after, limit)
