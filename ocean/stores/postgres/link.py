"""The link to a PostgreSQL server: connections, the two statements that a unit consists of, and what went wrong.

Every statement is a transaction of its own, so a pooler may hand each to another connection. A statement whose answer
is lost is repeated if it only reads; what became of a group of changes is found out by its token first.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from ocean.kernel.clock import Clock
from ocean.kernel.errors import StoreBusy, StoreFailed, StoreUnusable
from ocean.kernel.ids import new_token
from ocean.stores.postgres.migrate import migrate
from ocean.stores.postgres.needs import Look, Need, answers_from
from ocean.stores.postgres.options import Options
from ocean.stores.postgres.server_clock import ServerClock
from ocean.stores.postgres.test_clock import install_test_clock

T = TypeVar("T")
if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
else:
    # At run time the driver's classes take no parameters.
    Connection = Any

FETCH = (
    "SELECT at, nextval('ocean_versions') AS version, ocean_fetch($1::text::jsonb, at)::text AS found"
    " FROM (SELECT ocean_now() AS at OFFSET 0) t"
)
COMMIT = "SELECT ocean_commit($1, $2::text::jsonb, $3)::text"
SETTLE = "SELECT ocean_settle($1)::text"

LOST = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.InternalClientError, TimeoutError)
"""The connection is gone, and with it the answer."""
REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
"""The server is on its way down or up, or has no room: nothing of this statement has happened."""
BUSY = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.SerializationError)

MARGIN_MS = 100
"""By how much the server may be behind what this host takes its time for."""
PATIENCE_MS = (0, 20, 50, 100, 200, 400, 800, 1_600, 3_200)
"""How long to wait before each further try to reach a server."""


class Link:
    def __init__(self, options: Options, clock: Clock, *, name: str = "ocean", is_test: bool = False) -> None:
        self._options = options
        self._clock = clock
        self.server_clock = ServerClock(clock)
        self._name = name
        self._is_test = is_test
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._follows_clock = False
        self._told_at: int | None = None
        self.round_trips = 0

    async def open(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self._options.url,
                min_size=1,
                max_size=self._options.pool,
                reset=_leave_as_it_is,
                **self._options.connecting(self._name),
            )
            async with self._pool.acquire() as db:
                await migrate(db)  # type: ignore[arg-type]
                if self._is_test:
                    await install_test_clock(db)  # type: ignore[arg-type]
                self._follows_clock = await db.fetchval("SELECT to_regclass('ocean_test_clock') IS NOT NULL")
        except StoreUnusable:
            await self.close()
            raise
        except (*LOST, asyncpg.PostgresError, ValueError) as error:
            await self.close()
            raise StoreUnusable(f"cannot open PostgreSQL database {shown(self._options.url)}: {error}") from error

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    def check_open(self) -> None:
        if self._pool is None:
            raise StoreUnusable("this Ocean is closed")

    async def fetch(self, needs: Collection[Need], db: Connection | None = None) -> Look:
        text = json.dumps([need.as_json() for need in needs])

        async def ask(db: Connection) -> Look:
            row = await db.fetchrow(FETCH, text)
            assert row is not None
            if not self._follows_clock:
                self.server_clock.heard(row["at"])
            return Look(row["at"], row["version"], answers_from(row["found"]))

        return await (ask(db) if db is not None else self.read(ask))

    async def read(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """A statement that changes nothing: a lost answer is asked for again."""

        async def once(db: Connection) -> T:
            await self._tell_time(db)
            self.round_trips += 1
            return await ask(db)

        return await self._reach(once)

    async def commit(self, items: Sequence[dict[str, Any]]) -> list[Any]:
        """Write a group. Answers for each item a cursor, None if it must look again, or what the tables refuse."""
        token, text, is_sent = new_token(), json.dumps(items), False

        async def once(db: Connection) -> list[Any]:
            nonlocal token, is_sent
            await self._tell_time(db)
            if is_sent:
                self.round_trips += 1
                settled = await db.fetchval(SETTLE, token)
                if settled is not None:
                    return list(json.loads(settled))
                token = new_token()
            is_sent = True
            return await self.send(db, token, text)

        return await self._reach(once)

    async def send(self, db: Connection, token: str, text: str) -> list[Any]:
        self.round_trips += 1
        return list(json.loads(await db.fetchval(COMMIT, token, text, self._options.notify)))

    async def settled(self, token: str) -> list[Any] | None:
        """What became of a group whose answer was lost; None if nothing, and then nothing will."""

        async def once(db: Connection) -> list[Any] | None:
            text = await db.fetchval(SETTLE, token)
            return None if text is None else list(json.loads(text))

        return await self._reach(once)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Connection]:
        """A transaction that has the writers' lock from the beginning: for units that others were always ahead of."""
        self.check_open()
        assert self._pool is not None
        async with self._pool.acquire() as db:
            await self._tell_time(db)
            async with db.transaction():
                await db.execute("SELECT ocean_lock()")
                yield db

    async def _reach(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """With one connection after another, for as long as each turns out to be broken."""
        last: BaseException | None = None
        for wait_ms in PATIENCE_MS:
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            self.check_open()
            assert self._pool is not None
            try:
                async with self._pool.acquire() as db:
                    try:
                        return await use(db)
                    except (*LOST, *REFUSED):
                        db.terminate()
                        raise
            except BUSY as error:
                raise StoreBusy(f"PostgreSQL has no time: {error}; try again") from error
            except (*LOST, *REFUSED) as error:
                last = error
            except asyncpg.PostgresError as error:
                raise StoreFailed(f"PostgreSQL cannot do this: {error}; look at its log") from error
        raise StoreBusy("PostgreSQL cannot be reached; try again") from last

    def surely_past(self) -> int:
        """A time that the server has seen, as near to now as this host can tell."""
        return self._clock.now() if self._follows_clock else self.server_clock.now() - MARGIN_MS

    async def _tell_time(self, db: Connection) -> None:
        """In a database whose time is a row, that row says what the clock says."""
        if self._follows_clock and self._told_at != self._clock.now():
            self._told_at = self._clock.now()
            await db.execute("UPDATE ocean_test_clock SET now = $1", self._told_at)


async def _leave_as_it_is(db: "asyncpg.Connection[asyncpg.Record]") -> None:
    """No statement of ours leaves anything behind in its connection."""


def shown(url: str) -> str:
    """Without its password."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return repr(f"{scheme}://{user.split(':')[0]}{at}{place}")
