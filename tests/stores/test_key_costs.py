"""The cost of a line of parked runs does not grow with its length, neither for other runs nor for its head."""

import sqlite3
from functools import partial

import pytest

from bench.idle_poke import metered
from ocean.state.outcomes import Done, Ok, Retry
from ocean.state.records import Claim, ClogRecord
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, OTHER_CLOG, a_run, an_ask, claim, claimed_run, commit, pending
from tests.stores.test_plans import Act

pytestmark = pytest.mark.anyio

MANY = 10_000


async def _opened() -> SqliteStore:
    store = SqliteStore(":memory:", ManualClock())
    await store.open()
    await store.register_clogs([ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", False)])
    return store


def _multiply(run_id: str, count: int, db: sqlite3.Connection) -> None:
    """Insert `count` more runs like this one."""
    numbers = f"WITH RECURSIVE numbers(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM numbers WHERE i < {count})"
    for table in ("runs", "ocean_run_details", "ocean_run_keys", "ocean_inbox", "events"):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "seq"]
        copied = [f"{name} || i" if name in ("run_id", "correlation_id") else name for name in columns]
        db.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) {numbers}"
            f" SELECT {', '.join(copied)} FROM {table}, numbers WHERE run_id = ?",
            (run_id,),
        )


async def _behind_a_busy_key(count: int) -> tuple[SqliteStore, Claim]:
    store = await _opened()
    held = await claimed_run(store, "holder", concurrency_keys=["k"])
    if count:
        await pending(store, "p", concurrency_keys=["k"])
        await store.database.on_writer(partial(_multiply, "p", count))
    return store, held


async def _steps(store: SqliteStore, act: Act) -> int:
    return (await metered(store, partial(act, store))).steps


async def _claim_and_commit(store: SqliteStore) -> None:
    (claimed,) = await store.claim_due(an_ask())
    await commit(store, claimed, Ok())


async def _claim_nothing(store: SqliteStore) -> None:
    assert await store.claim_due(an_ask()) == []


OTHERS: dict[str, Act] = {
    "an idle claim": _claim_nothing,
    "an idle agenda": lambda store: store.agenda([CLOG, OTHER_CLOG]),
    "a creation": lambda store: pending(store, "free"),
    "an agenda": lambda store: store.agenda([CLOG, OTHER_CLOG]),
    "a claim and its commit": _claim_and_commit,
    "a creation under another key": lambda store: pending(store, "keyed", concurrency_keys=["other"]),
    "a claim under another key": _claim_and_commit,
    "a creation under the full key": lambda store: pending(store, "last", concurrency_keys=["k"]),
    "an end in the line": lambda store: store.cancel_run("last", None, None, None),
}


async def test_ten_thousand_runs_parked_on_a_key_cost_other_runs_nothing() -> None:
    (alone, _), (crowded, _) = await _behind_a_busy_key(0), await _behind_a_busy_key(MANY)
    assert (await crowded.get_key("k")).parked == 1_000, "counted no further"
    dear = {}
    for name, act in OTHERS.items():
        few, many = await _steps(alone, act), await _steps(crowded, act)
        if many > 1.1 * few:
            dear[name] = (few, many)
    await alone.close()
    await crowded.close()
    assert dear == {}


@pytest.mark.parametrize("outcome", [Ok(), Retry("no"), Done()], ids=["ok", "retry", "done"])
async def test_freeing_a_slot_costs_the_same_however_long_the_line_is(outcome: Ok | Retry | Done) -> None:
    costs = []
    for count in (10, MANY):
        store, held = await _behind_a_busy_key(count)
        commit_it: Act = lambda store, held=held: commit(store, held, outcome)  # type: ignore[misc]  # noqa: E731
        costs.append([await _steps(store, act) for act in (commit_it, claim)])
        await store.close()
    (few, claim_of_few), (many, claim_of_many) = costs
    assert many <= 1.1 * few
    assert claim_of_many <= 1.1 * claim_of_few


async def test_setting_and_reading_a_limit_costs_the_same_however_long_the_line_is() -> None:
    costs = []
    for count in (1_500, MANY):
        store, _ = await _behind_a_busy_key(count)
        raise_it: Act = lambda store: store.set_limit("k", 50, None, None)  # noqa: E731
        costs.append([await _steps(store, act) for act in (lambda store: store.get_key("k"), raise_it)])
        await store.close()
    (look, change), (look_at_many, change_of_many) = costs
    assert look_at_many <= 1.1 * look
    assert change_of_many <= 1.1 * change


async def test_runs_of_a_burst_are_parked_once_and_then_claims_cost_as_before() -> None:
    """Created while the key is free and before any claim, all are due; the next pokes take one and park the rest."""
    quiet, _ = await _behind_a_busy_key(1)
    store = await _opened()
    await pending(store, "p", concurrency_keys=["k"])
    await store.database.on_writer(partial(_multiply, "p", MANY))
    assert (await store.agenda([CLOG])).due_now == 1_000, "counted no further"

    assert len(await store.claim_due(an_ask(limit=32))) == 1
    assert await store.claim_due(an_ask(limit=32)) == [], "one slot, and it is taken"
    assert (await store.agenda([CLOG])).due_now == 0
    assert await store.database.read(_parked) == (MANY - 1, MANY - 1), "each is parked, with one event"

    for name, act in OTHERS.items():
        assert await _steps(store, act) <= 1.1 * await _steps(quiet, act), name
    await store.close()
    await quiet.close()


async def test_ending_a_whole_line_costs_as_much_per_run_however_long_it_is() -> None:
    """One parent ends, and with it as many due as parked children, while the key is free."""
    costs = []
    for count in (100, 800):
        store, _ = await _behind_a_busy_key(0)
        await pending(store, "mother")
        for name in ("parked", "due"):
            child = {"parent_run_id": "mother", "on_parent_end": "cancel", "concurrency_keys": ["k"]}
            await store.create_run(a_run(name, input=1, **child), None)  # type: ignore[arg-type]
            await store.database.on_writer(partial(_multiply, name, count))
            if name == "parked":
                await store.cancel_run("holder", None, None, None)
        end: Act = lambda store: store.cancel_run("mother", None, None, None)  # noqa: E731
        costs.append(await _steps(store, end) / count)
        assert await store.list_keys("", 10) == []
        await store.close()
    assert costs[1] <= 1.2 * costs[0]


def _parked(db: sqlite3.Connection) -> tuple[int, int]:
    runs = db.execute("SELECT count(*) FROM runs WHERE parked_on = 'k'").fetchone()[0]
    events = db.execute("SELECT count(*) FROM events WHERE type = 'run.parked'").fetchone()[0]
    return runs, events
