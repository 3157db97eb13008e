"""The databases of a simulation: SQLite on the virtual loop, or a real PostgreSQL with one call in flight at a time.

A call to PostgreSQL runs on another event loop, in a thread, while the simulation stands still: so it takes no virtual
time, no other task runs meanwhile, and the seed decides the order of calls.
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
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimAsk, Renewal, TickAnswer, TickCommit
from ocean.state.clock import Clock
from ocean.state.records import Claim, Lock, Run
from ocean.stores.postgres.client.batches import CLAIM
from ocean.stores.postgres.client.connection import Connection
from ocean.stores.postgres.client.payloads import claim_payload
from ocean.stores.postgres.store import PostgresStore
from ocean.stores.shared.rows import run_from
from ocean.stores.sqlite.claiming import claim_due
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit
from ocean.testing.simulation.inline_database import InlineDatabase, private_connection
from tests.postgres.server import fresh_database, return_database
from tests.postgres.tables import copy
from tests.simulation.faults import InjectedFaults
from tests.simulation.instances import WatchedStore, is_dry_run

if TYPE_CHECKING:
    from tests.simulation.instances import Instance

T = TypeVar("T")
BackendName = Literal["sqlite", "postgres"]

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
    """The runs that a claim takes, in order, and all runs after it."""

    ids: list[str]
    runs: dict[str, Run]


class Backend(Protocol):
    @property
    def db(self) -> sqlite3.Connection:
        """The tables as they are after the last commit."""

    def store(self, instance: "Instance") -> Store: ...

    def try_claim(self, ask: ClaimAsk, now: int) -> Claimed:
        """Return what a claim would take now. It is undone."""

    def close(self) -> None: ...


class SqliteBackend:
    def __init__(self) -> None:
        self.db = private_connection()

    def store(self, instance: "Instance") -> Store:
        return WatchedStore(instance, InlineDatabase(self.db, InjectedFaults(instance)), instance.clock)

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
def _real_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop in real time, which runs as long as this process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="simulated-database", daemon=True).start()
    return loop


def _run_on_real_loop(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _real_loop()).result()


class PostgresBackend:
    """PostgreSQL. All instances use the time of the server, so their clocks agree, however they are set."""

    def __init__(self, clock: Clock) -> None:
        self._url = fresh_database()
        self.postgres = PostgresStore(self._url, clock, is_test=True)
        _run_on_real_loop(self.postgres.open())
        self.db = _run_on_real_loop(copy(self.postgres))

    def store(self, instance: "Instance") -> Store:
        return cast(Store, OneAtATime(self, instance))

    def call(self, verb: str, *args: Any, **options: Any) -> Any:
        return _run_on_real_loop(getattr(self.postgres, verb)(*args, **options))

    def try_claim(self, ask: ClaimAsk, now: int) -> Claimed:
        return _run_on_real_loop(self.postgres.pool.read(partial(_try_claim, ask)))

    def renew(self, locks: list[Lock]) -> Renewal:
        words = [[lock.run_id, lock.epoch, lock.lock_ms] for lock in locks]
        answer = _run_on_real_loop(self.postgres.batches.write("renew_locks", words))
        lost, ending = ({locks[place] for place in places} for places in answer)
        return Renewal(lost, ending)

    def look(self) -> None:
        self.db.close()
        self.db = _run_on_real_loop(copy(self.postgres))

    def close(self) -> None:
        _run_on_real_loop(self.postgres.close())
        self.db.close()
        return_database(self._url)


async def _try_claim(ask: ClaimAsk, db: Connection) -> Claimed:
    cursor = await db.fetchrow("SELECT last_value, is_called FROM ocean_cursor")
    assert cursor is not None
    undone = db.transaction()
    await undone.start()
    try:
        answer = json.loads(await db.fetchval(CLAIM.send_sql, "watcher", json.dumps(claim_payload(ask)), False))
        runs = map(run_from, json.loads(await db.fetchval("SELECT json_agg(r)::text FROM runs r") or "[]"))
        return Claimed(
            [claim["shown"]["run"]["run_id"] for claim in answer["claims"]], {run.run_id: run for run in runs}
        )
    finally:
        await undone.rollback()
        # A rollback does not restore a sequence.
        await db.execute("SELECT setval('ocean_cursor', $1, $2)", *cursor)


class OneAtATime:
    """The store of one instance: every verb is one uninterrupted call, with injected faults before and after it."""

    def __init__(self, backend: PostgresBackend, instance: "Instance") -> None:
        self._backend = backend
        self._instance = instance
        self._faults = InjectedFaults(instance)
        self._commits = 0
        self._seen = backend.postgres.commits_seen()
        self._waiters: dict[asyncio.Future[None], None] = {}
        self.clock = instance.clock
        self.batch_sizes = backend.postgres.batch_sizes
        self.units: list[tuple[str, None]] = []

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        ask = self._read if verb in READS else self._write

        async def call(*args: Any, **options: Any) -> Any:
            return await ask(verb, *args, **options)

        return call

    async def commit_tick(self, commit: TickCommit) -> TickAnswer:
        try:
            return cast(TickAnswer, await self._write("commit_tick", commit))
        except LockLost:
            self._instance.world.history.lost.append((commit.lock.run_id, commit.tick, commit.lock.epoch))
            raise

    async def _read(self, verb: str, *args: Any, **options: Any) -> Any:
        await self._faults.before_read()
        return self._unless_it_fails(verb, lambda: self._backend.call(verb, *args, **options))

    async def _write(self, verb: str, *args: Any, **options: Any) -> Any:
        """Run in a task: it continues if its caller is cancelled."""
        if is_dry_run.get() and verb not in ("claim_due", "lease_work"):
            self._instance.world.fail("dry run", f"a dry run writes: {verb}")
        task = asyncio.create_task(self._written(verb, *args, **options))
        with anyio.CancelScope(shield=True):
            return await asyncio.shield(task)

    async def _written(self, verb: str, *args: Any, **options: Any) -> Any:
        await self._faults.before_write([])
        answer = self._noticing(verb, lambda: self._backend.call(verb, *args, **options))
        await self._faults.after_write([])
        return answer

    def renew_locks(self, locks: list[Lock]) -> Renewal:
        self._faults.before_blocking()
        renewal: Renewal = self._noticing("renew_locks", lambda: self._backend.renew(locks))
        return renewal

    def _unless_it_fails(self, verb: str, call: Callable[[], Any]) -> Any:
        """Fail the simulation if the server itself fails: all expected failures are injected."""
        try:
            return call()
        except (StoreBusy, StoreFailed) as error:
            self._instance.world.fail("unexpected error", f"{verb} failed on the server: {error}")
            raise

    def _noticing(self, verb: str, call: Callable[[], Any]) -> Any:
        before = self._backend.postgres.commits_seen()
        try:
            return self._unless_it_fails(verb, call)
        finally:
            if self._backend.postgres.commits_seen() != before:
                self._backend.look()
                self.units.append((verb, None))
                self._faults.after_commit()
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
        if self._backend.postgres.commits_seen() != self._seen:
            self._commits += 1
        self._wake()

    def _noticed(self) -> None:
        self._commits += 1
        self._wake()

    def _wake(self) -> None:
        self._seen = self._backend.postgres.commits_seen()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def open(self) -> None: ...

    async def close(self) -> None: ...
