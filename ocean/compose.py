"""`Ocean`: the one place where store, kernel, clogs, log and clock are composed."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import cached_property
from typing import Self

from ocean.clog.clog import Clog
from ocean.events import feed, retention
from ocean.events.follower import TakeAtOnce
from ocean.events.tail import Tail
from ocean.events.watchers import Watches
from ocean.kernel.arguments import checked_limit, feed_filter
from ocean.kernel.instances import ProcessTable
from ocean.kernel.kernel import DEFAULT_LOCK_MS, Kernel
from ocean.kernel.store import Store
from ocean.process_table import LinuxProcesses
from ocean.state.clock import Clock, SystemClock
from ocean.state.errors import StoreUnusable
from ocean.state.filters import FeedFilter
from ocean.state.records import Event, StoreFacts, SweepResult
from ocean.state.values import checked_id
from ocean.stores.sqlite.inspection import inspect_file
from ocean.stores.sqlite.store import SqliteStore
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials, from_environment
from ocean.tools.registry import denied_tools

SQLITE = "sqlite://"


async def open_store(url: str, clock: Clock) -> Store:
    """Open `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:` or `postgresql://user@host/database`."""
    if _is_postgres(url):
        return await _open_postgres(url, clock)
    store = SqliteStore(_sqlite_path(url), clock)
    await store.open()
    return store


async def open_test_store(url: str, clock: Clock) -> Store:
    """Open a store whose time is the given clock's, also on PostgreSQL, which otherwise uses the server's."""
    if _is_postgres(url):
        return await _open_postgres(url, clock, is_test=True)
    return await open_store(url, clock)


async def _open_postgres(url: str, clock: Clock, *, is_test: bool = False) -> Store:
    with _driver():
        from ocean.stores.postgres.store import PostgresStore

    store = PostgresStore(url, clock, is_test=is_test)
    await store.open()
    return store


@contextmanager
def _driver() -> Iterator[None]:
    """Explain a missing driver: it is needed only for PostgreSQL."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StoreUnusable(f"PostgreSQL needs {error.name}: pip install 'ocean-runtime[postgres]'") from error


def _is_postgres(url: str) -> bool:
    return isinstance(url, str) and url.startswith(("postgresql://", "postgres://"))


def store_facts(url: str) -> StoreFacts:
    """Return the facts of the database at a URL, without creating or changing it."""
    if _is_postgres(url):
        with _driver():
            from ocean.stores.postgres.inspection import inspect_server

        return inspect_server(url)
    return inspect_file(_sqlite_path(url))


def _sqlite_path(url: str) -> str:
    if not isinstance(url, str) or not url.startswith(SQLITE):
        raise StoreUnusable(
            f"the database URL must be sqlite:///ocean.db, sqlite://:memory: or postgresql://…, got {url!r}"
        )
    path = url.removeprefix(SQLITE)
    if path != ":memory:":
        if not path.startswith("/") or path == "/":
            raise StoreUnusable(f"the database URL must name a file, as sqlite:///ocean.db, got {url!r}")
        path = path.removeprefix("/")
    return path


class Ocean(Kernel):
    """The kernel on a database, and its log. Open one per process and share it between tasks."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str = "sqlite:///ocean.db",
        *,
        clogs: Iterable[Clog] = (),
        lock_ms: int = DEFAULT_LOCK_MS,
        instance_id: str | None = None,
        clock: Clock | None = None,
        private_hosts: Collection[str] = (),
        tools: Iterable[Tool | ToolBox] = (),
        deny_tools: Collection[str] = (),
        credentials: Credentials | None = None,
        processes: ProcessTable | None = None,
    ) -> AsyncIterator[Self]:
        """Open the database, migrate its schema, and register the clogs.

        `tools` are for clogs that list them. Tools named in `OCEAN_TOOLS_DENY` are also denied. By default,
        credentials are read from `OCEAN_CREDENTIAL_…`. `processes` knows which processes of this machine are gone; by
        default it is that of the system.
        """
        clock = clock or SystemClock()
        store = await open_store(url, clock)
        try:
            ocean = cls(
                store,
                clogs,
                store.clock,
                lock_ms=lock_ms,
                instance_id=instance_id,
                private_hosts=private_hosts,
                tools=tools,
                deny_tools=denied_tools(deny_tools, os.environ),
                credentials=from_environment(os.environ) if credentials is None else credentials,
                processes=processes or LinuxProcesses(),
            )
            await ocean.start()
        except BaseException:
            await store.close()
            raise
        try:
            yield ocean
        finally:
            await ocean.close()

    @cached_property
    def _tail(self) -> Tail:
        return Tail(self._store, self._clock)

    @cached_property
    def _watches(self) -> Watches:
        return Watches(self, self._tail, self._clock)

    async def close(self) -> None:
        """End all feeds and watchers, give back the runs that watchers are advancing, and close the database."""
        await self._watches.close()
        await self._tail.close()
        await super().close()

    async def read_events(
        self,
        run_id: str | None = None,
        *,
        session_id: str | None = None,
        clog_id: str | None = None,
        types: Collection[str] = (),
        correlation_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Event]:
        """Return a page of the log after a cursor: of a run, a session, a clog, or all."""
        where = feed_filter(run_id, session_id, clog_id, types, correlation_id)
        return await feed.read_page(self._store, where, after, checked_limit(limit))

    async def read_newest_events(
        self,
        run_id: str | None = None,
        *,
        session_id: str | None = None,
        clog_id: str | None = None,
        types: Collection[str] = (),
        correlation_id: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return a page of the log from its end, newest first; the next page is `before` the last event's `seq`."""
        where = feed_filter(run_id, session_id, clog_id, types, correlation_id)
        return await feed.read_newest(self._store, where, before, checked_limit(limit))

    def follow(
        self,
        run_id: str | None = None,
        *,
        session_id: str | None = None,
        clog_id: str | None = None,
        types: Collection[str] = (),
        correlation_id: str | None = None,
        after: int = 0,
    ) -> AsyncIterator[Event]:
        """Follow the log as it grows, each event once and in order. A run's feed ends after the run's last event."""
        where = feed_filter(run_id, session_id, clog_id, types, correlation_id)
        return feed.follow(self._store, self._tail, where, after)

    def follow_in_parts(
        self, where: FeedFilter, after: int, take_at_once: TakeAtOnce | None = None
    ) -> AsyncGenerator[list[Event], None]:
        """Follow the log in lists of events. `take_at_once` may take events while the caller waits for them."""
        return feed.follow_in_parts(self._store, self._tail, where, after, take_at_once)

    def watching(self, run_id: str) -> AbstractContextManager[None]:
        """Advance the run inside the block whenever it is due, once for all its watchers."""
        return self._watches.watching(checked_id(run_id, "run_id"))

    async def last_cursor(self) -> int:
        """Return the newest event's `seq`. A feed from there has only later events."""
        return (await self._store.event_bounds())[1]

    async def sweep(
        self,
        *,
        events_older_than_ms: int | None = None,
        runs_older_than_ms: int | None = None,
        requests_older_than_ms: int | None = retention.DAY_MS,
        batch: int = 500,
        max_batches: int = 1_000,
        on_progress: Callable[[SweepResult], object] | None = None,
    ) -> SweepResult:
        """Delete what is old enough, in bounded batches; a kind without an age is kept.

        But request keys are deleted after a day, and counters when they have expired. `on_progress` is called with the
        totals after each batch.
        """
        return await retention.sweep(
            self._store,
            self._clock,
            events_older_than_ms=events_older_than_ms,
            runs_older_than_ms=runs_older_than_ms,
            requests_older_than_ms=requests_older_than_ms,
            batch=batch,
            max_batches=max_batches,
            on_progress=on_progress,
        )
