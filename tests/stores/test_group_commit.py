"""Verbs committed as one transaction have the effect of the same verbs one by one."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial

import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings

from ocean.state.effects import Effects, RowWrite
from ocean.state.errors import RunNotFound
from ocean.state.outcomes import Done, Ok
from ocean.stores.sqlite.engine.database import Database
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.conformance.kit import GLOBAL, a_run, a_signal, commit_of
from tests.invariants import check_tables
from tests.stores.dump import Tables, dump
from tests.stores.group_verbs import ITEMS, Claims, Item, answer, arrange, broken


@cache
def _scene() -> tuple[bytes, Claims, int]:
    return asyncio.run(_arranged())


def prepare_scene() -> None:
    """Must be called outside an event loop: the scene is arranged in its own."""
    _scene()


async def _arranged() -> tuple[bytes, Claims, int]:
    clock = ManualClock()
    store = SqliteStore(":memory:", clock)
    await store.open()
    claims = await arrange(store, clock)
    image = await store.database.on_writer(lambda db: db.serialize())
    await store.close()
    return image, claims, clock.now()


async def copy_of_the_scene() -> tuple[SqliteStore, Claims]:
    image, claims, now = _scene()
    store = SqliteStore(":memory:", ManualClock(now))
    await store.open()
    await store.database.on_writer(lambda db: db.deserialize(image))
    return store, claims


async def _one_by_one(items: Sequence[Item]) -> tuple[list[object], Tables]:
    store, claims = await copy_of_the_scene()
    results = [await answer(item, store, claims) for item in items]
    tables = await store.database.read(dump)
    await store.database.read(lambda db: check_tables(db, _scene()[2]))
    await store.close()
    return results, tables


def on_sqlite(items: Sequence[Item]) -> tuple[list[object], Tables]:
    """The verbs one by one, to compare with."""
    _scene()
    return asyncio.run(_one_by_one(items))


async def _as_one_group(items: Sequence[Item]) -> tuple[list[object], Tables]:
    store, claims = await copy_of_the_scene()
    results = await together(store.database, [partial(answer, item, store, claims) for item in items])
    tables = await store.database.read(dump)
    await store.close()
    return results, tables


async def together(database: Database, items: Sequence[Callable[[], Awaitable[object]]]) -> list[object]:
    """Block the writer, queue every verb behind it in order, and release it: they are one group."""
    entered, let_go = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        entered.set()
        let_go.wait()

    holding = asyncio.ensure_future(database.write(hold))
    await asyncio.get_running_loop().run_in_executor(None, entered.wait)
    groups, units = database.group_sizes
    tasks = [asyncio.ensure_future(item()) for item in items]
    await anyio.lowlevel.checkpoint()
    let_go.set()
    await holding
    results = await asyncio.gather(*tasks, return_exceptions=True)
    # The blocking unit's own group is counted after its release.
    assert database.group_sizes == (groups + 2, units + 1 + len(items))
    return list(results)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(ITEMS)
def test_a_group_has_the_effect_of_its_verbs_one_by_one(items: list[Item]) -> None:
    _scene()

    async def both() -> None:
        apart, tables = await _one_by_one(items)
        together, group_tables = await _as_one_group(items)
        assert together == apart
        for name in tables:
            assert group_tables[name] == tables[name], name

    asyncio.run(both())


def _insert(name: str, fails: type[Exception] | None = None) -> Callable[[Transaction], str]:
    """A unit that writes one row and then, if requested, raises or violates a constraint."""

    def unit(db: Transaction) -> str:
        db.execute("INSERT INTO ocean_sessions VALUES (?, 1)", (name,))
        if fails is sqlite3.IntegrityError:
            db.execute("UPDATE ocean_log_floor SET id = 2")
        elif fails is not None:
            raise fails(name)
        return name

    return unit


async def _written(database: Database) -> list[str]:
    return await database.read(lambda db: [row[0] for row in db.execute("SELECT session_id FROM ocean_sessions")])


@pytest.mark.anyio
@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("error", [RunNotFound, ValueError, sqlite3.IntegrityError])
async def test_only_the_unit_at_fault_fails_and_the_others_stand(error: type[Exception], place: int) -> None:
    store = SqliteStore(":memory:", ManualClock())
    await store.open()
    units = [_insert(f"s{number}", error if number == place else None) for number in range(5)]
    results = await together(store.database, [partial(store.database.write, unit) for unit in units])
    good = [f"s{number}" for number in range(5) if number != place]
    assert [answer for answer in results if isinstance(answer, str)] == good
    assert isinstance(results[place], error)
    assert await _written(store.database) == good
    assert not await store.database.on_writer(lambda db: db.in_transaction)
    await store.close()


def test_a_failed_commit_of_a_group_fails_only_for_the_unit_at_fault() -> None:
    bad = Effects(writes=[RowWrite(GLOBAL, 0, apply=broken)])
    items: list[Item] = [
        lambda store, _: store.deliver_signal(a_signal("idle", 1), None),
        lambda store, claims: store.commit_tick(commit_of(claims["held-a"], Ok(), bad)),
        lambda store, claims: store.commit_tick(commit_of(claims["stale held-b"], Done())),
        lambda store, claims: store.commit_tick(commit_of(claims["held-b"], Done())),
    ]
    _scene()
    results, tables = asyncio.run(_as_one_group(items))
    assert [str(answer).split("(")[0] for answer in results] == [
        "SignalReceipt",
        "ZeroDivisionError",
        "LockLost",
        "Committed",
    ]
    assert tables == asyncio.run(_one_by_one([items[0], items[3]]))[1]


def _creation(number: int) -> Item:
    new = a_run(f"new-{number}", input=number)._replace(is_id_given=False)
    return lambda store, _: store.create_run(new, None)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 200])
def test_a_group_writes_all_its_rows_however_many_there_are(count: int) -> None:
    items = [_creation(number) for number in range(count)]
    _scene()
    _, tables = asyncio.run(_as_one_group(items))
    assert tables == asyncio.run(_one_by_one(items))[1]


def test_an_insert_of_many_rows_that_fails_leaves_none() -> None:
    """The rows before the one at fault are in the table when it fails."""
    _scene()

    async def with_a_guilty_one() -> tuple[list[object], Tables]:
        store, claims = await copy_of_the_scene()
        refusing = "BEFORE INSERT ON events WHEN NEW.run_id = 'new-2' BEGIN SELECT RAISE(FAIL, 'not this one'); END"
        await store.database.on_writer(lambda db: db.execute(f"CREATE TRIGGER refusing {refusing}"))
        items = [partial(_creation(number), store, claims) for number in range(5)]
        results = await together(store.database, items)
        tables = await store.database.read(dump)
        await store.close()
        return results, tables

    results, tables = asyncio.run(with_a_guilty_one())
    assert isinstance(results[2], sqlite3.IntegrityError)
    assert tables == asyncio.run(_one_by_one([_creation(number) for number in (0, 1, 3, 4)]))[1]
