"""Buffered writes and cached rows have the same effect as reading the tables."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocean.compose import open_store
from ocean.kernel.arguments import UNSET
from ocean.kernel.store import Store
from ocean.kernel.store.claims import Committed, Contended
from ocean.kernel.store.runs import Behind
from ocean.state.errors import LockLost
from ocean.state.outcomes import Continue, Done, Ok, Outcome, Wait
from ocean.state.records import Claim, ClogRecord, Run, RunStatus, changed
from ocean.stores.sqlite.engine import group_commit
from ocean.stores.sqlite.engine.cache import MOST_SESSIONS, Cache, OpenTick
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    GLOBAL,
    OTHER_CLOG,
    a_call,
    a_run,
    a_signal,
    an_ask,
    claim,
    claimed_run,
    commit,
    commit_of,
    events,
    pending,
    row,
    the_run,
    writes,
)
from tests.invariants import check_tables
from tests.stores.dump import Tables, dump
from tests.stores.dump import of_sqlite as database_of
from tests.stores.group_verbs import ITEMS, OUTCOMES, Item, add_one, answer, items_of
from tests.stores.test_group_commit import copy_of_the_scene, prepare_scene, together

DICE = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


class Forgetful(Cache):
    """A cache that is always empty: everything is read from the tables."""

    def begin(self, db: sqlite3.Connection) -> None:
        self.forget()

    def get(self, run_id: str) -> OpenTick | None:
        return None


@pytest.fixture(autouse=True)
def nothing_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong cache entry often violates a constraint; the units then run alone, which would hide it."""

    def alone(db: object, item: group_commit.QueuedUnit, known: object, why: BaseException) -> None:
        item.error = AssertionError(f"the group failed: {why!r}")

    monkeypatch.setattr(group_commit, "_run_alone", alone)


def _plain_creation(run_id: str, priority: int, has_input: bool) -> Item:
    """With a generated id, for which no earlier run is looked up."""
    input = {"n": priority} if has_input else UNSET
    new = a_run(run_id, priority=priority, input=input)._replace(is_id_given=False)
    return lambda store, _: store.create_run(new, None)


def creations() -> st.SearchStrategy[list[Item]]:
    made = st.builds(lambda *facts: facts, st.integers(0, 9), st.sampled_from([True, True, False]))
    return st.lists(made, max_size=5).map(
        lambda all: [_plain_creation(f"plain-{number}", *facts) for number, facts in enumerate(all)]
    )


@dataclass
class Story:
    """New runs and other verbs, followed by a claim; further verbs; and the commits of what was claimed."""

    items: Sequence[Item]
    limit: int
    slot: int
    later: Sequence[Item]
    outcomes: Sequence[Outcome]

    async def apart(self) -> tuple[Any, Tables]:
        store, claims = await copy_of_the_scene()
        database_of(store)._cache = Forgetful()
        results = [await answer(item, store, claims) for item in self.items]
        got = await store.claim_due(an_ask(limit=self.limit, slot=self.slot))
        rest = [*self.later, *_commits(got, self.outcomes)]
        results += [await answer(item, store, claims) for item in rest]
        tables = await store.database.read(dump)
        await store.database.read(lambda db: check_tables(db, store.clock.now()))
        await store.close()
        return (got, results), tables

    async def grouped(self) -> tuple[Any, Tables]:
        store, claims = await copy_of_the_scene()
        calls: list[Callable[[], Any]] = [partial(answer, item, store, claims) for item in self.items]
        calls.append(lambda: store.claim_due(an_ask(limit=self.limit, slot=self.slot)))
        *results, got = await together(store.database, calls)
        results += [await answer(item, store, claims) for item in self.later]
        commits: list[Callable[[], Any]] = [
            partial(answer, item, store, claims) for item in _commits(got, self.outcomes)
        ]
        results += await together(store.database, commits) if commits else []
        tables = await store.database.read(dump)
        await store.close()
        return (got, results), tables


def _commits(got: Any, outcomes: Sequence[Outcome]) -> list[Item]:
    def item(one: Claim, outcome: Outcome) -> Item:
        return lambda store, _: store.commit_tick(commit_of(one, outcome))

    assert isinstance(got, list), got
    return [item(one, outcomes[place % len(outcomes)]) for place, one in enumerate(got)]


@DICE
@given(
    creations(),
    ITEMS,
    st.integers(1, 8),
    st.integers(0, 7),
    items_of(add_one),
    st.lists(st.sampled_from(OUTCOMES), min_size=1),
)
def test_a_claim_sees_buffered_rows_of_its_group_and_commits_read_nothing(
    new: list[Item], items: list[Item], limit: int, slot: int, later: list[Item], outcomes: list[Outcome]
) -> None:
    prepare_scene()
    story = Story([*new, *items], limit, slot, later, outcomes)

    async def both() -> None:
        apart, tables = await story.apart()
        grouped, group_tables = await story.grouped()
        assert grouped == apart
        for name in tables:
            assert group_tables[name] == tables[name], name

    asyncio.run(both())


@pytest.fixture
async def pair(tmp_path: Path, anyio_backend: Any) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one file, as of two processes."""
    clock = ManualClock()
    stores = [await open_store(f"sqlite:///{tmp_path / 'ocean.db'}", clock) for _ in range(2)]
    for store in stores:
        await store.register_clogs([ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", True)])
    yield stores[0], stores[1]
    for store in stores:
        await store.close()


@pytest.mark.anyio
async def test_a_write_of_another_process_empties_the_cache(pair: tuple[Store, Store]) -> None:
    ours, theirs = pair
    held = await claimed_run(ours)
    await theirs.deliver_signal(a_signal("r", 1), None)
    await commit(ours, held, Ok())
    run = await the_run(ours)
    assert (run.status, run.pending_count, run.inbox_count) == (RunStatus.PENDING, 1, 2)
    assert [event.run_seq for event in await events(ours, "r")] == [1, 2, 3]


@pytest.mark.anyio
async def test_a_claim_can_read_the_inbox_after_it_has_taken_a_buffered_input(
    pair: tuple[Store, Store],
) -> None:
    """Nothing of the urgent run is read; of the other, one input is stored and another is buffered."""
    ours = pair[0]
    await ours.create_run(a_run("urgent", priority=0), None)
    await pending(ours, "other")
    signals = [
        lambda run_id=run_id: ours.deliver_signal(a_signal(run_id, run_id), None) for run_id in ("urgent", "other")
    ]
    *_, claims = await together(database_of(ours), [*signals, lambda: ours.claim_due(an_ask(limit=2))])
    assert isinstance(claims, list)
    assert [(each.run.run_id, [input.number for input in each.inputs]) for each in claims] == [
        ("urgent", [1]),
        ("other", [1]),
    ]
    for each in claims:
        await commit(ours, each, Ok())
    inputs = {run_id: await ours.list_inputs(run_id, 0, 10) for run_id in ("urgent", "other")}
    assert {run_id: [each.consumed_tick for each in some] for run_id, some in inputs.items()} == {
        "urgent": [1],
        "other": [1, None],
    }


@pytest.mark.anyio
async def test_the_last_cursor_is_cached_until_another_process_writes(pair: tuple[Store, Store]) -> None:
    ours, theirs = pair
    for store, run_id in ((ours, "a"), (ours, "b"), (theirs, "c"), (ours, "d")):
        await pending(store, run_id)
    assert [(event.seq, event.run_id) for event in await events(ours)] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.anyio
@pytest.mark.parametrize("who", [0, 1], ids=["this process", "another"])
async def test_a_clog_is_cached_until_it_is_changed(pair: tuple[Store, Store], who: int) -> None:
    ours = pair[0]
    await claimed_run(ours)
    await pending(ours, "next")
    await pair[who].set_clog_paused(CLOG, True, None, None)
    # In a transaction that is made in any case, so that the claim does not read before.
    made = [lambda: pending(ours, "more"), lambda: ours.claim_due(an_ask(run_id="next"))]
    assert (await together(database_of(ours), made))[1] == []


@pytest.mark.anyio
@pytest.mark.parametrize("who", [0, 1], ids=["this process", "another"])
async def test_a_session_is_cached_until_it_is_deleted(pair: tuple[Store, Store], who: int) -> None:
    ours = pair[0]
    first = await pending(ours, "first")
    assert await _sessions_written(ours, "second") == 0
    await pair[who].delete_session(first.session_id, None, None)
    assert await _sessions_written(ours, "third") == 1
    assert (await the_run(ours, "third")).session_id == first.session_id


async def _sessions_written(store: Store, run_id: str) -> int:
    """Created with this run."""
    ran: list[str] = []
    await database_of(store).on_writer(lambda db: db.set_trace_callback(ran.append))
    await pending(store, run_id)
    await database_of(store).on_writer(lambda db: db.set_trace_callback(None))
    return sum("INTO ocean_sessions" in statement for statement in ran)


@pytest.mark.anyio
async def test_a_session_of_a_refused_unit_is_not_cached(pair: tuple[Store, Store]) -> None:
    ours = pair[0]
    database = database_of(ours)

    def unit(transaction: Transaction) -> None:
        transaction.buffer("insert_session", "new", {"session_id": "new", "now": 1})
        raise LockLost("refused")

    async def fail() -> None:
        with pytest.raises(LockLost):
            await database.write(unit)

    await together(database, [fail, lambda: pending(ours, "other", session_id="other")])
    await pending(ours, "later", session_id="new")
    assert (await the_run(ours, "later")).session_id == "new"


def test_the_number_of_cached_sessions_is_bounded() -> None:
    known = Cache()
    known.learn_sessions(map(str, range(2 * MOST_SESSIONS)))
    known.learn_sessions(["last"])
    assert known.sessions == {"last"}


@pytest.mark.anyio
@pytest.mark.parametrize("maker", [0, 1], ids=["this process", "another"])
async def test_a_run_cached_as_childless_ends_a_child_created_since(pair: tuple[Store, Store], maker: int) -> None:
    ours = pair[0]
    _, claims = await together(database_of(ours), [lambda: pending(ours), lambda: ours.claim_due(an_ask())])
    assert isinstance(claims, list)
    await pending(pair[maker], "child", parent_run_id="r", on_parent_end="cancel")
    await commit(ours, claims[0], Done())
    assert (await the_run(ours, "child")).status is RunStatus.FAILED


@pytest.mark.anyio
async def test_a_cached_tick_that_another_process_took_over_cannot_commit(pair: tuple[Store, Store]) -> None:
    ours, theirs = pair
    held = await claimed_run(ours)
    assert isinstance(ours.clock, ManualClock)
    ours.clock.advance(60_000)
    heir = await claim(theirs, "r", instance_id="i-b")
    with pytest.raises(Exception, match="no longer held"):
        await commit(ours, held, Done("late"))
    await commit(theirs, heir, Done("heir"))
    assert (await the_run(ours)).status is RunStatus.DONE


@pytest.mark.anyio
@pytest.mark.parametrize("outcome", [Continue(1), Wait(for_ms=10), Ok(), Done(1)])
async def test_a_cached_tick_is_committed_without_a_read(pair: tuple[Store, Store], outcome: Outcome) -> None:
    ours, _ = pair
    database = database_of(ours)
    _, claims = await together(database, [lambda: pending(ours), lambda: ours.claim_due(an_ask())])
    assert isinstance(claims, list)
    ran: list[str] = []
    await database.on_writer(lambda db: db.set_trace_callback(ran.append))
    await commit(ours, claims[0], outcome)
    await database.on_writer(lambda db: db.set_trace_callback(None))
    assert [statement for statement in ran if "SELECT" in statement] == []
    assert [event.type for event in await events(ours, "r")][:2] == ["run.created", "tick.committed"]


@pytest.mark.anyio
async def test_a_run_claimed_by_the_transaction_that_creates_it_is_written_once(
    pair: tuple[Store, Store],
) -> None:
    ours, _ = pair
    database = database_of(ours)
    ran: list[str] = []
    await database.on_writer(lambda db: db.set_trace_callback(ran.append))
    await together(database, [lambda: _created_plainly(ours), lambda: ours.claim_due(an_ask())])
    await database.on_writer(lambda db: db.set_trace_callback(None))
    changes = [statement for statement in ran if "INTO runs" in statement or "UPDATE runs" in statement]
    assert len(changes) == 1
    assert (await the_run(ours, "plain")).status is RunStatus.ACTIVE


async def _created_plainly(store: Store) -> object:
    return await store.create_run(a_run("plain", input=1)._replace(is_id_given=False), None)


@pytest.mark.anyio
async def test_a_deleted_run_is_not_cached(pair: tuple[Store, Store]) -> None:
    ours, _ = pair
    held = await claimed_run(ours)
    await ours.delete_run("r", None, None)
    with pytest.raises(LockLost):
        await commit(ours, held, Done())
    assert (await events(ours))[-1].type == "run.deleted"


@pytest.mark.anyio
async def test_a_run_written_inside_a_unit_is_read_again(pair: tuple[Store, Store]) -> None:
    """The unit may still be refused, and its writes be undone."""
    ours, _ = pair
    await claimed_run(ours)

    def unit(transaction: Transaction) -> Run | None:
        run = transaction.known_run("r")
        assert run is not None
        transaction.save(changed(run, attempt=1))
        transaction.read("SELECT 1")
        return transaction.known_run("r")

    assert await database_of(ours).write(unit) is None


@pytest.mark.anyio
async def test_conflicts_of_a_cached_tick_are_seen(pair: tuple[Store, Store]) -> None:
    """Otherwise the turn that it took because of them would never be released."""
    ours, _ = pair
    held = await claimed_run(ours)
    await ours.commit_call(a_call(writes((GLOBAL, 0, "1")), run_id=None))
    for _ in range(2):
        assert isinstance(await commit(ours, held, Ok(), writes((GLOBAL, 0, "2"))), Contended)
    assert len(await _turns(ours)) == 1
    version = (await row(ours, GLOBAL)).version
    assert isinstance(await commit(ours, held, Ok(), writes((GLOBAL, version, "2"))), Committed)
    assert await _turns(ours) == []


async def _turns(store: Store) -> list[object]:
    tables = await database_of(store).read(dump)
    return list(tables["ocean_turns"][1:])


@pytest.mark.anyio
@pytest.mark.parametrize("who", [0, 1], ids=["this process", "another"])
async def test_the_absence_of_turns_is_cached_until_a_tick_takes_one(pair: tuple[Store, Store], who: int) -> None:
    ours = pair[0]
    held = await claimed_run(ours)
    await ours.commit_call(a_call(writes((GLOBAL, 0, "1")), run_id=None))
    await pair[who].take_turn(held.lock, [GLOBAL])
    version = (await row(ours, GLOBAL)).version
    assert isinstance(await ours.commit_call(a_call(writes((GLOBAL, version, "2")), run_id=None)), Behind)


@pytest.mark.anyio
async def test_a_turn_released_by_a_refused_unit_is_still_held(pair: tuple[Store, Store]) -> None:
    ours, _ = pair
    held = await claimed_run(ours)
    await ours.take_turn(held.lock, [GLOBAL])

    def unit(transaction: Transaction) -> None:
        transaction.do("release_turns", {"run_id": "r"})
        assert not transaction.has_turns()
        raise LockLost("refused")

    with pytest.raises(LockLost):
        await database_of(ours).write(unit)
    assert isinstance(await ours.commit_call(a_call(writes((GLOBAL, 0, "2")), run_id=None)), Behind)


@pytest.mark.anyio
async def test_an_unbuffered_statement_empties_the_cache(pair: tuple[Store, Store]) -> None:
    ours, _ = pair
    await claimed_run(ours)

    def unit(transaction: Transaction) -> Run | None:
        assert transaction.known_run("r") is not None
        transaction.execute("UPDATE runs SET attempt = 1")
        return transaction.known_run("r")

    assert await database_of(ours).write(unit) is None
