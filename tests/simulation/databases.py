"""What a world stands on: SQLite on the loop itself, or a real PostgreSQL with one call in flight in the whole world.

A call to PostgreSQL is made by an event loop of its own, on a thread, while the simulation stands still: so it takes no
virtual time, nothing comes between, and the order of calls is the seed's.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

import anyio

from ocean import LockLost, StoreBusy, StoreFailed
from ocean.kernel.store import ClaimAsk, Store, TickAnswer, TickCommit
from ocean.state.clock import Clock
from ocean.state.records import Claim, Lock, Run
from ocean.stores.postgres.client.batches import CLAIM
from ocean.stores.postgres.client.connection import Connection
from ocean.stores.postgres.client.payloads import claim_words
from ocean.stores.postgres.store import PostgresStore
from ocean.stores.shared.rows import run_from
from ocean.stores.sqlite.claiming import claim_due
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.testing.simulation.inline_database import InlineDatabase, private_connection
from tests.postgres.server import fresh_database, return_database
from tests.postgres.tables import copy
from tests.simulation.faults import Storm
from tests.simulation.instances import WatchedStore, is_rehearsal

if TYPE_CHECKING:
    from tests.simulation.instances import Instance

T = TypeVar("T")
GroundName = Literal["sqlite", "postgres"]

READS = frozenset(
    {
        "agenda",
        "count_runs",
        "due_inputs",
        "event_bounds",
        "find_run",
        "get_key",
        "get_run",
        "list_clogs",
        "list_inputs",
        "list_keys",
        "list_runs",
        "list_ticks",
        "look_at_counter",
        "preview_claim",
        "read_events",
        "read_rows",
        "read_step",
        "stored_answer",
        "survey",
    }
)


@dataclass(frozen=True)
class Claimed:
    """Whom a claim takes, in which order, and what all runs are after it."""

    ids: list[str]
    runs: dict[str, Run]


class Ground(Protocol):
    @property
    def db(self) -> sqlite3.Connection:
        """The tables as they are after the last commit."""

    def store(self, instance: "Instance") -> Store: ...

    def try_claim(self, ask: ClaimAsk, now: int) -> Claimed:
        """What would come of a claim now. It is undone."""

    def close(self) -> None: ...


class SqliteGround:
    def __init__(self) -> None:
        self.db = private_connection()

    def store(self, instance: "Instance") -> Store:
        return WatchedStore(instance, InlineDatabase(self.db, Storm(instance)), instance.clock)

    def try_claim(self, ask: ClaimAsk, now: int) -> Claimed:
        transaction = Transaction(self.db)
        u = Unit(transaction, now)
        self.db.execute("BEGIN")
        try:
            ids = [claim.run.run_id for claim in claim_due(u, ask)]
            u.flush()
            transaction.write()
            runs = map(run_from, self.db.execute("SELECT * FROM runs").fetchall())
            return Claimed(ids, {run.run_id: run for run in runs})
        finally:
            self.db.rollback()

    def close(self) -> None:
        self.db.close()


@cache
def _elsewhere() -> asyncio.AbstractEventLoop:
    """An event loop in real time, for as long as this process lasts."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="simulated-database", daemon=True).start()
    return loop


def _done(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _elsewhere()).result()


class PostgresGround:
    """One time for all: it is the server's. So the clocks of instances agree here, however they are set."""

    def __init__(self, clock: Clock) -> None:
        self._url = fresh_database()
        self.postgres = PostgresStore(self._url, clock, is_test=True)
        _done(self.postgres.open())
        self.db = _done(copy(self.postgres))

    def store(self, instance: "Instance") -> Store:
        return cast(Store, OneAtATime(self, instance))

    def call(self, verb: str, *args: Any) -> Any:
        return _done(getattr(self.postgres, verb)(*args))

    def try_claim(self, ask: ClaimAsk, now: int) -> Claimed:
        return _done(self.postgres.link.read(partial(_tried, ask)))

    def renew(self, locks: list[Lock]) -> set[Lock]:
        words = [[lock.run_id, lock.epoch, lock.lock_ms] for lock in locks]
        return {locks[place] for place in _done(self.postgres.writing.write("renew_locks", words))}

    def look(self) -> None:
        self.db.close()
        self.db = _done(copy(self.postgres))

    def close(self) -> None:
        _done(self.postgres.close())
        self.db.close()
        return_database(self._url)


async def _tried(ask: ClaimAsk, db: Connection) -> Claimed:
    cursor = await db.fetchrow("SELECT last_value, is_called FROM ocean_cursor")
    assert cursor is not None
    undone = db.transaction()
    await undone.start()
    try:
        answer = json.loads(await db.fetchval(CLAIM.sends, "watcher", json.dumps(claim_words(ask)), False))
        runs = map(run_from, json.loads(await db.fetchval("SELECT json_agg(r)::text FROM runs r") or "[]"))
        return Claimed(
            [claim["shown"]["run"]["run_id"] for claim in answer["claims"]], {run.run_id: run for run in runs}
        )
    finally:
        await undone.rollback()
        # A sequence is not undone with the rest.
        await db.execute("SELECT setval('ocean_cursor', $1, $2)", *cursor)


class OneAtATime:
    """The store of one instance: every verb is one call, made whole, with the weather before and after it."""

    def __init__(self, ground: PostgresGround, instance: "Instance") -> None:
        self._ground = ground
        self._instance = instance
        self._weather = Storm(instance)
        self._commits = 0
        self._seen = ground.postgres.commits_seen()
        self._waiters: dict[asyncio.Future[None], None] = {}
        self.clock = instance.clock
        self.batch_sizes = ground.postgres.batch_sizes
        self.units: list[tuple[str, None]] = []

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        ask = self._read if verb in READS else self._write

        async def call(*args: Any) -> Any:
            return await ask(verb, *args)

        return call

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        try:
            return cast(TickAnswer, await self._write("commit_tick", commit))
        except LockLost:
            self._instance.world.history.lost.append((commit.lock.run_id, commit.tick, commit.lock.epoch))
            raise

    async def _read(self, verb: str, *args: Any) -> Any:
        await self._weather.before_read()
        return self._unfailing(verb, lambda: self._ground.call(verb, *args))

    async def _write(self, verb: str, *args: Any) -> Any:
        """As a task: it goes on if its caller is cancelled."""
        if is_rehearsal.get() and verb not in ("claim_due", "lease_work"):
            self._instance.world.fail("dry run", f"a dry run writes: {verb}")
        task = asyncio.create_task(self._written(verb, *args))
        with anyio.CancelScope(shield=True):
            return await asyncio.shield(task)

    async def _written(self, verb: str, *args: Any) -> Any:
        await self._weather.before_write([])
        answer = self._noticing(verb, lambda: self._ground.call(verb, *args))
        await self._weather.after_write([])
        return answer

    def renew_locks(self, locks: list[Lock]) -> set[Lock]:
        self._weather.before_blocking()
        lost: set[Lock] = self._noticing("renew_locks", lambda: self._ground.renew(locks))
        return lost

    def _unfailing(self, verb: str, call: Callable[[], Any]) -> Any:
        """What fails here is the weather. A server that does so itself was asked for something impossible."""
        try:
            return call()
        except (StoreBusy, StoreFailed) as error:
            self._instance.world.fail("nobody expected", f"{verb} failed on the server: {error}")
            raise

    def _noticing(self, verb: str, call: Callable[[], Any]) -> Any:
        before = self._ground.postgres.commits_seen()
        try:
            return self._unfailing(verb, call)
        finally:
            if self._ground.postgres.commits_seen() != before:
                self._ground.look()
                self.units.append((verb, None))
                self._weather.after_commit()
                self._noticed()

    def commits_seen(self) -> int:
        return self._commits

    def order_claims(self, ask: ClaimAsk, claimed: Callable[[list[Claim]], None]) -> None:
        return None

    async def next_commit(self, seen: int, look_ms: int = 100) -> int:
        loop = asyncio.get_running_loop()
        while self._commits <= seen:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters[waiter] = None
            look = loop.call_later(look_ms / 1000, self._look)
            try:
                await waiter
            finally:
                look.cancel()
                self._waiters.pop(waiter, None)
        return self._commits

    def _look(self) -> None:
        if self._ground.postgres.commits_seen() != self._seen:
            self._commits += 1
        self._wake()

    def _noticed(self) -> None:
        self._commits += 1
        self._wake()

    def _wake(self) -> None:
        self._seen = self._ground.postgres.commits_seen()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def open(self) -> None: ...

    async def close(self) -> None: ...
