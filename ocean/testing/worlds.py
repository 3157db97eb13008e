"""`world`: a private database, an `Ocean` on it, and a clock that the test moves."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ocean.clog.clog import Clog
from ocean.compose import Ocean, open_test_store
from ocean.kernel.arguments import UNSET, checked_count
from ocean.kernel.instances import ProcessTable
from ocean.kernel.kernel import DEFAULT_LOCK_MS
from ocean.kernel.store import Store
from ocean.state.clock import Clock
from ocean.state.errors import InvalidValue
from ocean.state.records import TickResult
from ocean.testing.manual_clock import ManualClock
from ocean.testing.outside import Outside
from ocean.testing.world_ocean import MOST_TICKS, WorldOcean
from ocean.tools.author import Tool, ToolBox
from ocean.tools.credentials import Credentials

if TYPE_CHECKING:
    from ocean.testing.requests import WorldResponse


def in_memory() -> str:
    """Return the URL of a new SQLite database in memory."""
    return "sqlite://:memory:"


fresh_url = in_memory
"""Makes the URL of a world that names no database. A test suite may replace it to use another kind."""


@dataclass(slots=True)
class World:
    """An Ocean on a private database, with a clock that only the test moves."""

    ocean: Ocean
    clock: ManualClock
    store: Store
    _outside: Outside | None = None
    _app: Any = None
    _instances: list[WorldOcean] = field(default_factory=list)

    @property
    def outside(self) -> Outside:
        """The `Outside` of this world. A world without one calls the real services."""
        if self._outside is None:
            raise LookupError("this world has no Outside: make it with world(clogs, outside=Outside())")
        return self._outside

    async def drain(self, ocean: Ocean | None = None) -> list[TickResult]:
        """Poke until nothing is due at this moment, and return the result of every call of a handler."""
        results: list[TickResult] = []
        while len(results) < MOST_TICKS:
            advanced = await (ocean or self.ocean).advance(
                budget_ms=60_000, max_ticks=min(1_000, MOST_TICKS - len(results))
            )
            results += advanced.outcomes
            if not advanced.outcomes and not advanced.due_now:
                return results
        raise AssertionError(f"runs are still due after {MOST_TICKS} ticks: does a handler always return Continue?")

    async def wait(self, ms: int) -> list[TickResult]:
        """Let time pass, with each run poked at the moment it is due. Returns the result of every call of a handler."""
        until = self.clock.now() + checked_count(ms, "ms")
        results = await self.drain()
        while (wake_at := (await self.ocean.agenda()).next_wake_at) is not None and wake_at <= until:
            self.clock.advance(max(wake_at - self.clock.now(), 0))
            done = await self.drain()
            results += done
            if not done and (await self.ocean.agenda()).next_wake_at == wake_at:
                break
        self.clock.advance(max(until - self.clock.now(), 0))
        return results + await self.drain()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = UNSET,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> "WorldResponse":
        """Send a request to the HTTP application of this Ocean, also to routes and webhooks of clogs.

        It does not poke: call `drain`.
        """
        # Imported here, so that tests without requests do not load the web libraries.
        from ocean.testing.requests import application, send_request

        self._app = self._app or application(self.ocean)
        return await send_request(self._app, method, path, json, body, headers or {})

    async def instance(
        self,
        clogs: Iterable[Clog] = (),
        *,
        lock_ms: int = DEFAULT_LOCK_MS,
        instance_id: str | None = None,
        clock: Clock | None = None,
        processes: ProcessTable | None = None,
    ) -> Ocean:
        """Return another instance on the same database. To locks it is a second process."""
        other = WorldOcean(
            self.store,
            clogs,
            clock or self.clock,
            lock_ms=lock_ms,
            instance_id=instance_id,
            reach=self._outside,
            processes=processes,
        )
        if self._instances and (clock is None or clock is self.clock):
            other.let_time_pass(self.clock, self._instances)
        await other.start()
        return other


@asynccontextmanager
async def world(
    clogs: Iterable[Clog] = (),
    *,
    url: str | None = None,
    lock_ms: int = DEFAULT_LOCK_MS,
    instance_id: str | None = None,
    private_hosts: Collection[str] = (),
    outside: Outside | None = None,
    tools: Iterable[Tool | ToolBox] = (),
    deny_tools: Collection[str] = (),
    credentials: Credentials | None = None,
    processes: ProcessTable | None = None,
    moves_time: bool = True,
) -> AsyncIterator[World]:
    """Open a world. A PostgreSQL database must be one for tests: from then on its time is the world's.

    With an `outside`, that object responds to what ticks fetch, and keeps every call. Credentials and denied tools of
    the environment are not used here. Without `processes` nothing is known of the processes of other instances.

    `result` and `settle` of its instances move the clock when a run can move only by time, and `result` raises
    `RunStuck` when it cannot move at all. With `moves_time=False` they wait for other tasks of the test to act.
    """
    if outside is not None and private_hosts:
        raise InvalidValue("private_hosts must not be used with outside: use Outside(live=True, private_hosts=…)")

    instances: list[WorldOcean] = []

    def make(store: Store, clock: ManualClock) -> Ocean:
        ocean = WorldOcean(
            store,
            clogs,
            clock,
            lock_ms=lock_ms,
            instance_id=instance_id,
            private_hosts=private_hosts,
            reach=outside,
            tools=tools,
            deny_tools=deny_tools,
            credentials=credentials,
            processes=processes,
        )
        if moves_time:
            ocean.let_time_pass(clock, instances)
        return ocean

    async with open_world(make, url, outside) as made:
        made._instances = instances
        yield made


@asynccontextmanager
async def open_world(
    make: Callable[[Store, ManualClock], Ocean], url: str | None, outside: Outside | None
) -> AsyncIterator[World]:
    """Open a world whose Ocean the caller makes."""
    clock = ManualClock()
    store = await open_test_store(url or fresh_url(), clock)
    try:
        ocean = make(store, clock)
        await ocean.start()
    except BaseException:
        await store.close()
        raise
    try:
        yield World(ocean, clock, store, outside)
    finally:
        await ocean.close()
