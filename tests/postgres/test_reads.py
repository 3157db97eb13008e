"""Every verb that only reads: both stores return the same for the same rows, in one round trip, from one snapshot."""

from typing import Any

import asyncpg
import pytest

from ocean.compose import open_test_store
from ocean.kernel.run_query import run_filter
from ocean.kernel.store import Store
from ocean.kernel.store.claims import ClaimableClog, ClaimAsk, LeaseAsk, RowsAsk
from ocean.kernel.store.events import SweepAsk
from ocean.kernel.store.runs import Request
from ocean.state.counters import Take
from ocean.state.effects import Debounce, Effects, RowWrite
from ocean.state.errors import OceanError
from ocean.state.filters import FeedFilter
from ocean.state.outcomes import Done, Failed, Ok, Wait
from ocean.state.records import ApiKey, ClogRecord, Key, RunStatus
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    GLOBAL,
    OTHER_CLOG,
    SESSION,
    a_run,
    a_signal,
    an_ask,
    claim,
    claimed_run,
    ended_run,
    pending,
    run_row,
    run_tick,
    tick_row,
)
from tests.postgres.copy_rows import fill
from tests.postgres.tables import of_postgres
from tests.stores.dump import dump, of_sqlite

pytestmark = pytest.mark.anyio

OUTSIDE, POLITE = "outside", "polite"
CLOGS = (CLOG, OTHER_CLOG, POLITE)
ALL_INPUTS = {clog_id: ClaimableClog(clog_id, 1_000, "2", True) for clog_id in CLOGS}
TAKES = (Take("steady", 2, limit=3, per_ms=1_000), Take("steady", 1, limit=3, per_ms=1_000))
Call = tuple[str, tuple[Any, ...]]


async def lives(store: Store, clock: ManualClock) -> list[str]:
    """Create runs in every state, with rows in every table; returns their ids."""
    clogs = [ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", False, allows=("create",))]
    outside = ClogRecord(OUTSIDE, "1", False, external=True, takes_all_inputs=True)
    await store.register_clogs([*clogs, outside, ClogRecord(POLITE, "1", True)])
    await ended_run(store, "done", Done({"n": 1}), attributes={"colour": "red", "size": 2}, session_id="t")
    await ended_run(
        store, "failed", Failed({"code": "odd", "message": "no"}), attributes={"colour": "blue"}, clog_id=OTHER_CLOG
    )
    await pending(store, "due", priority=1, attributes={"colour": "blue", "size": 3})
    await store.create_run(a_run("idle", parent_run_id="due", clog_id=OTHER_CLOG, dedupe_key="one"), None)
    await store.create_run(a_run("brief", parent_run_id="due", dedupe_key="two", dedupe_ms=10), None)
    await debounced(store)
    await pending(store, "asleep", session_id="t", deadline_at=clock.now() + 60)
    await run_tick(store, "asleep", Wait(for_ms=50))
    await store.set_limit("narrow", 1, None, None)
    await claimed_run(store, "busy", concurrency_keys=["narrow", Key("wide", hold="run")])
    await pending(store, "parked", concurrency_keys=["wide", "narrow"])
    await pending(store, "leased", clog_id=OUTSIDE)
    await store.lease_work(LeaseAsk(OUTSIDE, "worker", 5_000, (), ("lease",), 0))
    await pending(store, "leaving", clog_id=POLITE)
    await store.cancel_run("leaving", None, None, None)
    await store.set_clog_paused(POLITE, True, None, None)
    await storage(store)
    await access(store, clock)
    return ["done", "failed", "due", "idle", "brief", "restless", "asleep", "busy", "parked", "leased", "leaving", "r"]


async def debounced(store: Store) -> None:
    new = a_run("restless", input=1, dedupe_key="three", session_id="t")
    await store.create_run(new._replace(debounce=Debounce(20, None)), None)


async def storage(store: Store) -> None:
    """A run with rows of several ticks, steps, and more in its inbox than one tick takes."""
    await pending(store, "r", input="first")
    for tick in range(1, 4):
        rows = [RowWrite(tick_row(tick, name), 0, f'"{name}{tick}"') for name in ("b", "a")]
        held = await claim(store, "r")
        await store.store_step(held.lock, tick, "pay", '{"paid": true}')
        await store.store_step(held.lock, 0, f"once{tick}", "null")
        kept = [RowWrite(key, 0, str(tick)) for key in (GLOBAL, SESSION, run_row("r"))] if tick == 1 else []
        await store.give_back(held.lock, held.tick)
        await run_tick(store, "r", Ok(), Effects(writes=[*rows, *kept]))
        await store.deliver_signal(a_signal("r", tick, signal_id=f"signal-{tick}"), None)
    for number in range(3):
        await store.deliver_signal(a_signal("r", number), None)
    await store.take(TAKES[0], Request("took", "hash"))


async def access(store: Store, clock: ManualClock) -> None:
    for name, until in (("a", None), ("b", clock.now() + 30), ("c", None)):
        await store.add_api_key(ApiKey(name, "someone", ("read",), ("staff",), None, expires_at=until), f"hash-{name}")
        await store.add_web_session(f"web-{name}", name, 40)
    await store.revoke_api_key("c")


FILTERS: list[dict[str, Any]] = [
    {},
    {"status": ["pending", "done"]},
    {"clog_id": [CLOG, OTHER_CLOG]},
    {"session_id": ["s", "t"]},
    {"session_id": "t", "status": "waiting"},
    {"parent_run_id": "due"},
    {"ended_from": 0},
    {"ended_from": 0, "session_id": "t"},
    {"clog_id": CLOG, "attributes": {"colour": ["blue", "red"]}},
    {"clog_id": CLOG, "attributes": {"colour": "blue", "size": 3}, "status": "pending"},
    {"clog_id": "nobody's"},
]


def all_calls(run_ids: list[str]) -> list[Call]:
    calls: list[Call] = [(verb, ()) for verb in ("has_api_keys", "list_clogs", "event_bounds")]
    for run_id in [*run_ids, "nobody"]:
        calls += [(verb, (run_id,)) for verb in ("get_run", "standing")]
        calls += [("survey", (run_id, clog_ids)) for clog_ids in ((), CLOGS)]
        calls += [("list_ticks", (run_id, 0, 2)), ("list_inputs", (run_id, 1, 2))]
        calls += [("due_inputs", (run_id, limit)) for limit in (1, 5)]
        calls += [("preview_claim", (an_ask(*CLOGS, run_id=run_id),))]
        calls += [("preview_claim", (ClaimAsk(ALL_INPUTS, "i", 1, run_id=run_id),))]
        calls += [("read_events", (FeedFilter(run_id=run_id), 0, 5)), ("read_step", (run_id, 0, "once2"))]
    for query in FILTERS:
        where = run_filter(**query)
        calls += [("list_runs", (where, 2, None, is_descending)) for is_descending in (True, False)]
        calls += [("count_runs", (where, cap)) for cap in (1, 100)]
    for name in ("a", "b", "c", "d"):
        calls += [("find_api_key", (name,)), ("find_web_session", (f"web-{name}",)), ("list_api_keys", (name, 1))]
    for dedupe_key in ("one", "two", "three", "four"):
        calls += [("find_run", (clog_id, session, dedupe_key)) for clog_id in CLOGS for session in ("s", "t")]
    for feed in (FeedFilter(), FeedFilter(session_id="t"), FeedFilter(clog_id=CLOG, types=("run.created",))):
        calls += [("read_events", (feed, after, 7)) for after in (0, 10)]
    calls += [("agenda", (clog_ids,)) for clog_ids in ((), CLOGS, (POLITE,))]
    calls += [("get_key", (key,)) for key in ("narrow", "wide", "none")]
    calls += [("list_keys", (after, 1)) for after in ("", "narrow", "wide")]
    calls += [("look_at_counter", (TAKES[:most],)) for most in (1, 2)]
    calls += [("stored_answer", (Request(key, "hash"),)) for key in ("took", "another")]
    calls += [("stored_answer", (Request("took", "other"),)), ("look_at_counter", ((Take("steady"),),))]
    calls += [("standing_of_lease", (lease,)) for lease in ("lease", "lost")]
    rows = (GLOBAL, SESSION, run_row("r"), run_row("idle"), tick_row(2, "a"), tick_row(9, "a"))
    calls += [("read_rows", (RowsAsk(CLOG, "s", "r", rows, ("two", "one", "none"), (1, 3), 2),))]
    calls += [("read_rows", (RowsAsk(CLOG, "t", "idle", dedupe_keys=("three",), history=5),))]
    return calls


async def result_of(store: Store, call: Call) -> Any:
    verb, given = call
    try:
        return await getattr(store, verb)(*given)
    except OceanError as error:
        return type(error), str(error), error.details


@pytest.mark.parametrize("later_ms", [0, 15, 35, 100, 10_000])
async def test_both_stores_return_the_same_for_the_same_rows(database: str, later_ms: int) -> None:
    clock = ManualClock()
    ours, theirs = await open_test_store("sqlite://:memory:", clock), await open_test_store(database, clock)
    try:
        calls = all_calls(await lives(ours, clock))
        clock.advance(later_ms)
        if later_ms > 100:
            await ours.sweep(SweepAsk(clock.now() - 5_000, None, None, 3))
        await fill(database, await of_sqlite(ours).read(dump))
        runs = (await theirs.list_runs(run_filter(), 100, None, False)).runs
        assert {run.status for run in runs} == set(RunStatus)
        for call in calls:
            before = of_postgres(theirs).pool.round_trips
            assert await result_of(theirs, call) == await result_of(ours, call), call
            assert of_postgres(theirs).pool.round_trips == before + 1, call
    finally:
        await ours.close()
        await theirs.close()


async def test_all_functions_of_a_read_see_one_snapshot(database: str) -> None:
    """A volatile function would take a new snapshot for each of its statements."""
    db = await asyncpg.connect(database)
    functions = await db.fetch("SELECT proname, prosrc, provolatile::text FROM pg_proc WHERE proname LIKE 'ocean%'")
    await db.close()
    sources = {row["proname"]: row["prosrc"] for row in functions}
    kinds = {row["proname"]: row["provolatile"] for row in functions}
    called, waiting = set[str](), ["ocean_read", "ocean_walk", "ocean_clogs_with_runs", "ocean_shown"]
    while waiting:
        name = waiting.pop()
        called.add(name)
        waiting += [other for other in sources if f"{other}(" in sources[name] and other not in called]
    assert {name for name in called if kinds[name] == "v"} == {"ocean_now"}
    assert len(called) > 20
