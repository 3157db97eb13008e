"""The connections to a PostgreSQL server, and what is done when one breaks.

Every statement is its own transaction, so a pooler may send each to another connection. A statement that only reads is
sent again if its result is lost; one that writes is sent through `exactly_once`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import asyncpg

from ocean.state.clock import Clock
from ocean.state.errors import StoreBusy, StoreFailed, StoreUnusable
from ocean.stores.postgres.client.options import Options
from ocean.stores.postgres.client.server_clock import ServerClock
from ocean.stores.postgres.migrate import migrate
from ocean.stores.shared.refusals import refusal

T = TypeVar("T")
if TYPE_CHECKING:
    Pooled = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Connection = asyncpg.Connection[asyncpg.Record] | Pooled
else:
    # At run time the driver's classes take no parameters.
    Pooled = Connection = Any

SPARE_MS = 60_000
"""How long an idle spare connection is trusted: a proxy or firewall in between may drop it."""
LOST = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.InternalClientError, TimeoutError)
"""The connection is lost, and the result with it."""
REFUSED = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""The server is starting or stopping, is no longer the primary, or has too many connections: another one may work."""
BUSY = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
)
REFUSAL = "OC001"
"""The SQLSTATE of a refusal: see `ocean_refuse`."""

UNSETTABLE = "unsupported startup parameter"
"""What PgBouncer's error contains if a client sets parameters for its connection."""

RETRY_PAUSES_MS = (0, 20, 50, 100, 200, 400, 800, 1_600, 3_200)
"""The pause before each attempt to reach the server."""
CLOSING_S = 5

TEST_CLOCK = """
CREATE TABLE IF NOT EXISTS ocean_test_clock (id INT PRIMARY KEY CHECK (id = 1), now BIGINT NOT NULL);
INSERT INTO ocean_test_clock (id, now) VALUES (1, 0) ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION ocean_now() RETURNS BIGINT LANGUAGE sql VOLATILE AS
$$ SELECT now FROM ocean_test_clock $$;
"""
OPENED = "SELECT ocean_now() AS now, to_regclass('ocean_test_clock') IS NOT NULL AS has_test_clock"


class ConnectionPool:
    """A pool of connections that reconnects, and follows the server's clock."""

    def __init__(
        self,
        options: Options,
        clock: Clock,
        *,
        name: str = "ocean",
        is_test: bool = False,
        retry_pauses_ms: Sequence[int] = RETRY_PAUSES_MS,
    ) -> None:
        self.options = options
        self._retry_pauses_ms = retry_pauses_ms
        self._clock = clock
        self.server_clock = ServerClock(clock)
        self._name = name
        self._is_test = is_test
        self._driver_pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._follows_clock = False
        self._test_clock_at: int | None = None
        self._setting_clock = asyncio.Lock()
        self._own: set[int] = set()
        self._spare: dict[int, tuple[Pooled, int]] = {}
        self._wanted = 0
        self.round_trips = 0

    async def open(self) -> None:
        try:
            self._driver_pool = await asyncpg.create_pool(
                self.options.url,
                # A minimum would make the driver replace lost connections at once, and log each failure to do so.
                min_size=0,
                max_size=self.options.pool,
                init=self._register,
                reset=_no_reset,
                **self.options.connect_arguments(self._name),
            )
            async with self._driver_pool.acquire() as db:
                await migrate(db)  # type: ignore[arg-type]
                if self._is_test:
                    await install_test_clock(db)  # type: ignore[arg-type]
                await self._read_server_time(db)
        except StoreUnusable:
            await self.close()
            raise
        except (*LOST, asyncpg.PostgresError, ValueError) as error:
            await self.close()
            hint = "; it is a pooler: add pooler=on to the URL" if UNSETTABLE in str(error) else ""
            raise StoreUnusable(
                f"cannot open PostgreSQL database {without_password(self.options.url)}: {error}{hint}"
            ) from error

    async def close(self) -> None:
        if self._driver_pool is not None:
            pool, self._driver_pool = self._driver_pool, None
            try:
                async with asyncio.timeout(CLOSING_S):
                    while self._spare:
                        await pool.release(self._spare.popitem()[1][0])
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    def check_open(self) -> None:
        if self._driver_pool is None:
            raise StoreUnusable("this Ocean is closed")

    async def read(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Run one statement that only reads; it is sent again if its result is lost. It counts as one round trip."""

        async def once(db: Connection) -> T:
            self.round_trips += 1
            return await ask(db)

        return await self.reach(once)

    async def ask(self, db: Connection, statement: str, *values: Any) -> Any:
        """Execute a statement that returns one JSON value."""
        self.round_trips += 1
        text = await db.fetchval(statement, *values)
        return None if text is None else json.loads(text)

    async def reach(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        """Call `use` with a connection, and again with another one while connections turn out to be broken."""
        now = asyncio.get_running_loop().time
        last: BaseException | None = None
        give_up_at = now() + self.options.give_up_after_s
        for wait_ms in self._retry_pauses_ms:
            if wait_ms:
                await asyncio.sleep(wait_ms / 1000)
            if last is not None and now() > give_up_at:
                break
            try:
                return await self._reach_once(use)
            except BUSY as error:
                raise StoreBusy(f"PostgreSQL is busy: {error}; retry") from error
            except (*LOST, *REFUSED) as error:
                last = error
            except asyncpg.PostgresError as error:
                if error.sqlstate == REFUSAL:
                    raise refusal(str(error), json.loads(error.detail or "{}")) from None
                raise StoreFailed(f"PostgreSQL failed: {error}; see the server's log") from error
        raise StoreBusy("PostgreSQL cannot be reached; retry") from last

    async def _reach_once(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._connection() as db:
            try:
                if self._follows_clock:
                    await self._set_test_clock(db)
                return await use(db)
            except (*LOST, *REFUSED):
                db.terminate()
                raise

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        self.check_open()
        assert self._driver_pool is not None
        pool = self._driver_pool
        db = await self._acquired(pool)
        pid = db.get_server_pid()
        is_kept = False
        try:
            yield db
            is_kept = self._driver_pool is pool and self.owns(pid) and not self._spare and not self._wanted
        finally:
            if is_kept:
                # The driver's pool is slow. Without other load the next caller gets this connection at once.
                self._spare[pid] = db, self._clock.now()
            else:
                await pool.release(db)

    async def _acquired(self, pool: "asyncpg.Pool[asyncpg.Record]") -> Pooled:
        if self._spare:
            _, (db, since) = self._spare.popitem()
            if self._clock.now() - since <= SPARE_MS:
                return db
            db.terminate()
            await pool.release(db)
        self._wanted += 1
        try:
            with anyio.CancelScope(shield=True):
                # If the driver is cancelled while it connects, its background task fails later, with no handler.
                db = await pool.acquire()
        finally:
            self._wanted -= 1
        return db

    async def _register(self, db: "asyncpg.Connection[asyncpg.Record]") -> None:
        pid = db.get_server_pid()
        self._own.add(pid)
        db.add_termination_listener(lambda _: self._lost(pid))

    def _lost(self, pid: int) -> None:
        self._own.discard(pid)
        self._spare.pop(pid, None)

    def owns(self, pid: int) -> bool:
        """Whether a server process serves one of this pool's connections."""
        return pid in self._own

    def observe(self, now: int, asked_at: int) -> None:
        """Correct the server clock: the server's time was `now` after this host's clock showed `asked_at`."""
        if not self._follows_clock:
            self.server_clock.observe(now, asked_at)

    def host_time(self) -> int:
        return self._clock.now()

    async def _read_server_time(self, db: Connection) -> None:
        asked_at = self.host_time()
        row = await db.fetchrow(OPENED)
        assert row is not None
        self._follows_clock = row["has_test_clock"]
        self.observe(row["now"], asked_at)

    async def _set_test_clock(self, db: Connection) -> None:
        """Set the test clock's row to this clock's time. One task at a time, so that it never goes back."""
        async with self._setting_clock:
            now = self._clock.now()
            if self._test_clock_at != now:
                await db.execute("UPDATE ocean_test_clock SET now = $1", now)
                self._test_clock_at = now


async def _no_reset(db: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Reset nothing: no statement of Ocean leaves state in its connection."""


def without_password(url: str) -> str:
    """The URL without its password, quoted."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return repr(f"{scheme}://{user.split(':')[0]}{at}{place}")


async def install_test_clock(db: "asyncpg.Connection[Any]") -> None:
    """Replace the server's clock by a row that is set, permanently. Only for the databases of tests."""
    if await db.fetchval("SELECT to_regclass('ocean_test_clock')") is None:
        await db.execute(TEST_CLOCK)
