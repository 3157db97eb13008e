"""A group of writes has the effect of its verbs one by one, in the order of their execution."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings

from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed
from ocean.state.clock import Clock
from ocean.state.effects import Effects, NewEvent, RowWrite
from ocean.state.errors import StoreFailed
from ocean.state.outcomes import Done, Ok
from ocean.state.records import ClogRecord
from ocean.stores.postgres.client.batches import WriteBatches
from ocean.stores.postgres.client.connection import Connection, ConnectionPool
from ocean.stores.postgres.client.options import options_from
from ocean.stores.postgres.store import PostgresStore
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, GLOBAL, SESSION, a_run, a_signal, an_ask, commit_of, pending, row
from tests.postgres.server import fresh_database, return_database
from tests.stores.dump import Tables
from tests.stores.group_verbs import ITEMS, Claims, Item, add_one, answer, arrange, broken, items_of
from tests.stores.test_group_commit import on_sqlite

T = TypeVar("T")
Rows = dict[str, list[Any]]


class OneTransaction(ConnectionPool):
    """Everything that a store does happens in a transaction of the test, which is rolled back."""

    def __init__(self, url: str, clock: Clock, db: Connection) -> None:
        super().__init__(options_from(url), clock)
        self._db = db
        self._turn = asyncio.Lock()

    def check_open(self) -> None:
        """Use this connection until the end of the test."""

    async def _reach_once(self, use: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._turn:
            return await use(self._db)


class Scene:
    """A database that is reset to its arranged state."""

    def __init__(self) -> None:
        self.url = fresh_database()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.claims: Claims = {}
        self.db: asyncpg.Connection[asyncpg.Record] = self.runner.run(asyncpg.connect(self.url))

    def arrange(self, how: Callable[[Store, ManualClock], Awaitable[Claims]]) -> None:
        async def arranged() -> Claims:
            store = PostgresStore(self.url, self.clock, is_test=True)
            await store.open()
            found = await how(store, self.clock)
            await store.close()
            return found

        self.claims = self.runner.run(arranged())

    def close(self) -> None:
        self.runner.run(self.db.close())
        self.runner.close()
        return_database(self.url)

    async def visited(self, use: Callable[[PostgresStore], Awaitable[list[object]]]) -> tuple[list[object], Rows]:
        """Run something, and return its result and the rows afterwards. Everything is rolled back."""
        store = PostgresStore(self.url, self.clock)
        store.pool = OneTransaction(self.url, self.clock, self.db)
        store.batches = WriteBatches(store.pool)
        cursor = await self.db.fetchval("SELECT last_value FROM ocean_cursor")
        undone = self.db.transaction()
        await undone.start()
        try:
            found = await use(store)
            return found, await rows_of(self.db)
        finally:
            await undone.rollback()
            await self.db.fetchval("SELECT setval('ocean_cursor', $1)", cursor)


async def rows_of(db: Connection) -> Rows:
    """Every row of every table except group tokens. Versions are only compared, so their ranks replace them."""
    names = await db.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'ocean_groups'"
    )
    found: Rows = {}
    for (name,) in names:
        rows = json.loads(await db.fetchval(f"SELECT coalesce(json_agg(t), '[]')::text FROM {name} t"))
        found[name] = rows
    stored = [each for name, rows in found.items() if name.startswith("ocean_storage") for each in rows]
    ranks = {version: rank for rank, version in enumerate(sorted({each["version"] for each in stored}))}
    for each in stored:
        each["version"] = ranks[each["version"]]
    found["cursor"] = [await db.fetchval("SELECT last_value FROM ocean_cursor")]
    return {name: sorted(rows, key=str) for name, rows in found.items()}


async def one_by_one(store: PostgresStore, claims: Claims, items: Sequence[Item]) -> list[object]:
    return [await answer(item, store, claims) for item in items]


async def as_one_group(store: PostgresStore, claims: Claims, items: Sequence[Item], done: list[int]) -> list[object]:
    """`done` is the order of their effects: a verb whose function was applied to an outdated text is executed later."""

    async def one(place: int, item: Item) -> object:
        found = await answer(item, store, claims)
        done.append(place)
        return found

    return await asyncio.gather(*(one(place, item) for place, item in enumerate(items)))


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    made.arrange(arrange)
    yield made
    made.close()


def compare(scene: Scene, items: Sequence[Item]) -> list[object]:
    async def both() -> list[object]:
        order: list[int] = []
        together, rows = await scene.visited(partial(as_one_group, claims=scene.claims, items=items, done=order))
        ordered = [items[place] for place in order]
        apart, expected = await scene.visited(partial(one_by_one, claims=scene.claims, items=ordered))
        assert [together[place] for place in order] == apart
        for name in expected:
            assert rows[name] == expected[name], name
        return together

    return scene.runner.run(both())


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(items=ITEMS)
def test_a_group_has_the_effect_of_its_verbs_one_by_one(scene: Scene, items: list[Item]) -> None:
    compare(scene, items)


def plain(value: Any) -> Any:
    """Normalized for both databases: flags are numbers on one of them, and JSON text may have other whitespace."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        return repr(sorted_keys(json.loads(value)))
    return int(value) if isinstance(value, bool) else value


def sorted_keys(value: Any) -> Any:
    match value:
        case dict():
            return {key: sorted_keys(value[key]) for key in sorted(value)}
        case list():
            return [sorted_keys(each) for each in value]
    return value


OF_ITS_OWN = {("ocean_requests", "answer"), ("ocean_leases", "row_version")}


def is_its_own(table: str, column: str) -> bool:
    """What differs between the databases: version numbers, and the form of a stored result."""
    return (table.startswith("ocean_storage") and column == "version") or (table, column) in OF_ITS_OWN


def by_column(tables: Tables, rows: Rows) -> dict[str, tuple[list[str], list[str]]]:
    """By table, the rows of SQLite and of PostgreSQL, reduced to what must be equal."""
    found = {}
    for name in tables.keys() & rows.keys():
        columns, *theirs = tables[name]
        kept = [column for column in columns if not is_its_own(name, column)]
        named = [dict(zip(columns, row, strict=True)) for row in theirs]
        found[name] = tuple(sorted(str([plain(row[c]) for c in kept]) for row in side) for side in (named, rows[name]))
    return found  # type: ignore[return-value]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(items=items_of(None, add_one))
def test_verbs_have_the_same_results_and_effects_on_both_databases(scene: Scene, items: list[Item]) -> None:
    """No function raises: one that does is called before anything is sent, so no other refusal is found first."""
    results, rows = scene.runner.run(scene.visited(partial(one_by_one, claims=scene.claims, items=items)))
    expected, tables = on_sqlite(items)
    assert list(map(str, results)) == list(map(str, expected))
    for name, found in by_column(tables, rows).items():
        assert found[1] == found[0], name


def test_a_verb_that_is_refused_or_fails_leaves_no_trace(scene: Scene) -> None:
    bad = Effects(writes=[RowWrite(GLOBAL, 0, apply=broken)])
    # When its signal is refused, it has already written a row and an event.
    refused = Effects(writes=[RowWrite(GLOBAL, 0, "1")], events=[NewEvent("said", "1", CLOG)])
    refused.signals.append(a_signal("ended", required=True))
    items: list[Item] = [
        lambda store, _: store.deliver_signal(a_signal("idle", 1), None),
        lambda store, claims: store.commit_tick(commit_of(claims["held-a"], Ok(), bad)),
        lambda store, claims: store.commit_tick(commit_of(claims["stale held-b"], Done())),
        lambda store, _: store.create_run(a_run("idle", input="another body"), None),
        lambda store, claims: store.commit_tick(commit_of(claims["held-a"], Ok(), refused)),
        lambda store, claims: store.commit_tick(commit_of(claims["held-b"], Done())),
    ]
    results = compare(scene, items)
    names = [str(found).split("(")[0] for found in results]
    assert names == ["SignalReceipt", "ZeroDivisionError", "LockLost", "RunExists", "SignalRefused", "Committed"]

    async def without() -> bool:
        good = [items[0], items[5]]
        _, expected = await scene.visited(partial(one_by_one, claims=scene.claims, items=good))
        _, rows = await scene.visited(partial(as_one_group, claims=scene.claims, items=items, done=[]))
        return rows == expected

    assert scene.runner.run(without())


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_verb_that_the_database_cannot_store_fails_alone(scene: Scene, place: int) -> None:
    """No kernel sends it, but what a database refuses must fail one verb only."""

    def say(number: int) -> Item:
        # An event type that is null violates a constraint of the log, after a row was written.
        event_type: Any = None if number == place else "said"
        effects = Effects(writes=[RowWrite(SESSION, 0, f'"{number}"')] if number == place else [])
        effects.events.append(NewEvent(event_type, f"{number}", CLOG))

        async def item(store: Store, claims: Claims) -> object:
            with suppress(StoreFailed):
                return (
                    await store.commit_tick(commit_of(claims["held-a"], Ok(), effects))
                    if number == place
                    else (await store.deliver_signal(a_signal("idle", number), None))
                )
            return "failed"

        return item

    results = compare(scene, [say(number) for number in range(5)])
    assert [found == "failed" for found in results] == [number == place for number in range(5)]


def test_forty_functions_on_one_row_are_one_group_and_each_is_applied_once() -> None:
    async def hold_forty(store: Store, clock: ManualClock) -> Claims:
        await store.register_clogs([ClogRecord(CLOG, "1", False)])
        for number in range(40):
            await pending(store, f"r{number}")
        return {claim.run.run_id: claim for claim in await store.claim_due(an_ask(limit=40))}

    calls: list[str | None] = []

    def counted(old: str | None) -> str:
        calls.append(old)
        return add_one(old)

    async def commit_all(store: PostgresStore) -> list[object]:
        effects = Effects(writes=[RowWrite(SESSION, 0, apply=counted)])
        commits = [store.commit_tick(commit_of(claim, Ok(), effects)) for claim in forty.claims.values()]
        results = await asyncio.gather(*commits)
        return [*results, (await row(store, SESSION)).text, store.batch_sizes.count]

    forty = Scene()
    forty.arrange(hold_forty)
    (*results, text, groups), _ = forty.runner.run(forty.visited(commit_all))
    assert all(isinstance(found, Committed) for found in results)
    assert (text, groups) == ("40", 1)
    assert calls == [None, *(str(number) for number in range(1, 40))]
    forty.close()
