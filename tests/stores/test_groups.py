"""Group = one by one: items committed as one transaction have the effect of the same items in turn."""

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ocean.kernel.backoff import RetryPolicy
from ocean.kernel.effects import CancelTimer, Effects, NewEvent, RowKey, RowWrite, SetTimer
from ocean.kernel.errors import OceanError, RunNotFound
from ocean.kernel.outcomes import Continue, Done, Failed, Ok, Outcome, Retry, Wait
from ocean.kernel.records import Claim, ClogRecord
from ocean.kernel.store import Request
from ocean.stores.sqlite.database import Database
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    GLOBAL,
    LOCK_MS,
    OTHER_CLOG,
    SESSION,
    a_call,
    a_run,
    a_signal,
    claim,
    commit_of,
    ended_run,
    pending,
    run_row,
)
from tests.invariants import check_tables
from tests.stores.dump import Tables, dump

RUNS = ["idle", "held-a", "held-b", "held-c", "ended", "child", "nobody"]
HELD = ["held-a", "held-b", "held-c"]

Item = Callable[[SqliteStore, dict[str, Claim]], Awaitable[Any]]


@cache
def _scene() -> tuple[bytes, dict[str, Claim], int]:
    """A database with runs in several states, and the claims that a test may commit, stale ones among them."""
    return asyncio.run(_arranged())


async def _arranged() -> tuple[bytes, dict[str, Claim], int]:
    clock = ManualClock()
    store = SqliteStore(":memory:", clock)
    await store.open()
    await store.register_clogs([ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", True)])
    await store.create_run(a_run("idle", dedupe_key="taken"), None)
    await ended_run(store, "ended", Done())
    claims = {}
    for run_id in HELD:
        clog_id = OTHER_CLOG if run_id == "held-c" else CLOG
        await pending(store, run_id, clog_id=clog_id, retry=RetryPolicy(max_attempts=2))
        claims[f"stale {run_id}"] = await claim(store, run_id)
    clock.advance(LOCK_MS)
    for run_id in HELD:
        claims[run_id] = await claim(store, run_id)
    await pending(store, "child", parent_run_id="held-a", notify_parent=True, on_parent_end="cancel")
    image = await store.database.on_writer(lambda db: db.serialize())
    await store.close()
    return image, claims, clock.now()


async def _copy_of_the_scene() -> tuple[SqliteStore, dict[str, Claim]]:
    image, claims, now = _scene()
    store = SqliteStore(":memory:", ManualClock(now))
    await store.open()
    await store.database.on_writer(lambda db: db.deserialize(image))
    return store, claims


def _creations() -> st.SearchStrategy[Item]:
    def item(run_id: str, dedupe_key: str | None, body: int, request: str | None) -> Item:
        new = a_run(run_id, input=body, dedupe_key=dedupe_key)
        return lambda store, _: store.create_run(new, Request(request, str(body)) if request else None)

    ids = st.sampled_from(["new-1", "new-2", "idle", "ended"])
    return st.builds(
        item, ids, st.sampled_from([None, "free", "taken"]), st.integers(0, 1), st.sampled_from([None, "key"])
    )


def _signals() -> st.SearchStrategy[Item]:
    def item(run_id: str, signal_id: str | None, body: int, if_idle: bool) -> Item:
        signal = a_signal(run_id, body, signal_id=signal_id, if_idle=if_idle)
        return lambda store, _: store.deliver_signal(signal, None)

    return st.builds(
        item,
        st.sampled_from([*RUNS, "new-1"]),
        st.sampled_from([None, "x", "y"]),
        st.integers(0, 1),
        st.booleans(),
    )


OUTCOMES: list[Outcome] = [Ok(), Done(1), Continue(2), Wait(for_ms=50), Retry("no"), Failed("no")]


def _add_one(old: str | None) -> str:
    return str(int(old or "0") + 1)


def _break(old: str | None) -> str:
    raise ZeroDivisionError


def _writes() -> st.SearchStrategy[RowWrite]:
    """Version 0 fits the first writer of a row only; a function always fits, and one of them breaks."""
    keys: st.SearchStrategy[RowKey] = st.sampled_from([GLOBAL, SESSION, run_row("idle"), run_row("held-a")])
    return st.builds(
        lambda key, apply: RowWrite(key, 0, None if apply else '"v"', apply),
        keys,
        st.sampled_from([None, None, None, _add_one, _add_one, _break]),
    )


def _effects() -> st.SearchStrategy[Effects]:
    some = st.booleans()

    def build(
        writes: list[RowWrite], says: bool, signals: list[str], requires: bool, births: bool, deletes: list[str]
    ) -> Effects:
        effects = Effects(writes=writes)
        if says:
            effects.events.append(NewEvent("said", '{"n":1}', CLOG))
            effects.timers += [SetTimer("t", 1_900_000_000_000, None), CancelTimer("u")]
            effects.attributes["a"] = "b"
        effects.signals += [a_signal(to, 1, signal_id="x", required=requires) for to in signals]
        if births:
            effects.runs.append(a_run("born", input=1, dedupe_key="free"))
        effects.delete_runs += [(CLOG, run_id) for run_id in deletes]
        return effects

    distinct = st.lists(_writes(), max_size=3, unique_by=lambda write: write.key)
    return st.builds(
        build,
        distinct,
        some,
        st.lists(st.sampled_from(RUNS), max_size=2),
        some,
        some,
        st.lists(st.sampled_from(["child", "held-c", "ended"]), max_size=1),
    )


def _copied(effects: Effects) -> Effects:
    """The same effects for each store: neither may see what the other did to them."""
    return replace(
        effects, **{name: type(getattr(effects, name))(getattr(effects, name)) for name in ("writes", "events")}
    )


def _commits() -> st.SearchStrategy[Item]:
    def item(run_id: str, is_stale: bool, outcome: Outcome, effects: Effects) -> Item:
        name = f"stale {run_id}" if is_stale else run_id
        return lambda store, claims: store.commit_tick(commit_of(claims[name], outcome, _copied(effects)))

    is_stale = st.sampled_from([False, False, False, True])
    return st.builds(item, st.sampled_from(HELD), is_stale, st.sampled_from(OUTCOMES), _effects())


def _calls() -> st.SearchStrategy[Item]:
    def item(run_id: str | None, effects: Effects, request: str | None) -> Item:
        asked = Request(request, "h") if request else None
        return lambda store, _: store.commit_call(a_call(_copied(effects), run_id=run_id, request=asked))

    where = st.sampled_from([None, "idle", "held-b", "ended"])
    return st.builds(item, where, _effects().filter(lambda e: not e.timers), st.sampled_from([None, "call"]))


def _others() -> st.SearchStrategy[Item]:
    held = st.sampled_from([*HELD, *(f"stale {run_id}" for run_id in HELD)])
    said = [NewEvent("token", '"t"', CLOG)]
    return st.one_of(
        st.builds(lambda run_id: lambda s, _: s.cancel_run(run_id, None, None, None), st.sampled_from(RUNS)),
        st.builds(lambda run_id: lambda s, _: s.delete_run(run_id, None, None), st.sampled_from(RUNS)),
        st.builds(lambda run_id, on: lambda s, _: s.set_run_paused(run_id, on, None, None), *_pause()),
        st.builds(lambda name: lambda s, c: s.append_streamed(c[name].lock, 1, 2, said), held),
        st.builds(lambda name: lambda s, c: s.store_step(c[name].lock, 1, "pay", f'"{name}"'), held),
        st.builds(lambda name: lambda s, c: s.take_turn(c[name].lock, [SESSION]), held),
        st.builds(lambda name: lambda s, c: s.give_back(c[name].lock, 1), held),
        st.just(lambda s, _: s.delete_session("s", None, None)),
    )


def _pause() -> tuple[st.SearchStrategy[str], st.SearchStrategy[bool]]:
    return st.sampled_from(RUNS), st.booleans()


ITEMS = st.lists(
    st.one_of(_creations(), _signals(), _commits(), _commits(), _commits(), _calls(), _others()),
    min_size=1,
    max_size=14,
)


async def _answer(item: Item, store: SqliteStore, claims: dict[str, Claim]) -> object:
    """What the caller gets: the answer, or the refusal as text."""
    try:
        return await item(store, claims)
    except (OceanError, ZeroDivisionError) as refusal:
        return repr(refusal)


async def _one_by_one(items: Sequence[Item]) -> tuple[list[object], Tables]:
    store, claims = await _copy_of_the_scene()
    answers = [await _answer(item, store, claims) for item in items]
    tables = await store.database.read(dump)
    await store.database.read(lambda db: check_tables(db, _scene()[2]))
    await store.close()
    return answers, tables


async def _as_one_group(items: Sequence[Item]) -> tuple[list[object], Tables]:
    store, claims = await _copy_of_the_scene()
    answers = await _together(store.database, [partial(_answer, item, store, claims) for item in items])
    tables = await store.database.read(dump)
    await store.close()
    return answers, tables


async def _together(database: Database, items: Sequence[Callable[[], Awaitable[object]]]) -> list[object]:
    """Hold the writer, let every item queue up behind it in order, and let go: they are one group."""
    entered, let_go = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        entered.set()
        let_go.wait()

    holding = asyncio.ensure_future(database.write(hold))
    await asyncio.get_running_loop().run_in_executor(None, entered.wait)
    groups, units = database.group_sizes
    tasks = [asyncio.ensure_future(item()) for item in items]
    await anyio.lowlevel.checkpoint()
    let_go.set()
    await holding
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    # The holder's own group is counted after it let go.
    assert database.group_sizes == (groups + 2, units + 1 + len(items))
    return list(answers)


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(ITEMS)
def test_a_group_has_the_effect_of_its_items_one_by_one(items: list[Item]) -> None:
    _scene()

    async def both() -> None:
        apart, tables = await _one_by_one(items)
        together, group_tables = await _as_one_group(items)
        assert together == apart
        for name in tables:
            assert group_tables[name] == tables[name], name

    asyncio.run(both())


def _insert(name: str, fails: type[Exception] | None = None) -> Callable[[sqlite3.Connection], str]:
    """A unit that writes one row, and then breaks or breaks a constraint if told to."""

    def unit(db: sqlite3.Connection) -> str:
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
async def test_only_the_guilty_item_fails_and_the_others_stand(error: type[Exception], place: int) -> None:
    store = SqliteStore(":memory:", ManualClock())
    await store.open()
    units = [_insert(f"s{number}", error if number == place else None) for number in range(5)]
    answers = await _together(store.database, [partial(store.database.write, unit) for unit in units])
    good = [f"s{number}" for number in range(5) if number != place]
    assert [answer for answer in answers if isinstance(answer, str)] == good
    assert isinstance(answers[place], error)
    assert await _written(store.database) == good
    assert not await store.database.on_writer(lambda db: db.in_transaction)
    await store.close()


def test_a_broken_commit_of_a_shared_group_fails_for_its_writer_alone() -> None:
    bad = Effects(writes=[RowWrite(GLOBAL, 0, apply=_break)])
    items: list[Item] = [
        lambda store, _: store.deliver_signal(a_signal("idle", 1), None),
        lambda store, claims: store.commit_tick(commit_of(claims["held-a"], Ok(), bad)),
        lambda store, claims: store.commit_tick(commit_of(claims["stale held-b"], Done())),
        lambda store, claims: store.commit_tick(commit_of(claims["held-b"], Done())),
    ]
    _scene()
    answers, tables = asyncio.run(_as_one_group(items))
    assert [str(answer).split("(")[0] for answer in answers] == [
        "SignalReceipt",
        "ZeroDivisionError",
        "LockLost",
        "Committed",
    ]
    assert tables == asyncio.run(_one_by_one([items[0], items[3]]))[1]
