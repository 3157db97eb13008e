"""Costs, by query plan and by steps of SQLite's virtual machine: none grows with runs that sleep or have ended."""

import re
import sqlite3
from collections.abc import Awaitable, Callable
from functools import cache, partial

import pytest

from bench.idle_poke import fill, metered, plan
from ocean.kernel.run_query import run_filter
from ocean.kernel.store.claims import RowsAsk
from ocean.kernel.store.events import SweepAsk
from ocean.state.counters import Take
from ocean.state.effects import Effects, NewEvent, RowWrite, SetTimer
from ocean.state.filters import FeedFilter
from ocean.state.outcomes import Continue, Done, Ok
from ocean.state.records import ClogRecord
from ocean.stores.sqlite.engine.write_buffer import BUFFERED, QUERIES, positional
from ocean.stores.sqlite.migrate import migrate
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.conformance.kit import (
    CLOG,
    NO_CLOGS,
    OTHER_CLOG,
    SESSION,
    a_call,
    a_run,
    a_signal,
    an_ask,
    claim,
    claimed_run,
    commit,
    ended_run,
    pending,
    run_row,
    run_tick,
)

NOW = ManualClock().now()
MANY = 20_000


@cache
def _crowd(count: int, has_statistics: bool = False) -> bytes:
    """A database with `count` waiting and as many finished runs of both clogs."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    for clog_id in (CLOG, OTHER_CLOG):
        db.execute(
            "INSERT INTO ocean_clogs (clog_id, version, has_on_end, registered_at) VALUES (?, '1', 0, 0)", (clog_id,)
        )
    fill(db, "waiting", count, CLOG, NOW)
    fill(db, "done", count, OTHER_CLOG, NOW)
    if has_statistics:
        db.execute("ANALYZE")
    image = db.serialize()
    db.close()
    return image


async def _opened(count: int, has_statistics: bool = False) -> SqliteStore:
    store = SqliteStore(":memory:", ManualClock())
    await store.open()
    await store.database.on_writer(lambda db: db.deserialize(_crowd(count, has_statistics)))
    return store


Act = Callable[[SqliteStore], Awaitable[object]]

IDLE: dict[str, Act] = {
    "claim": lambda store: store.claim_due(an_ask()),
    "claim without clogs": lambda store: store.claim_due(NO_CLOGS),
    "agenda": lambda store: store.agenda([CLOG]),
    "agenda of another": lambda store: store.agenda([]),
}


async def _steps(store: SqliteStore, act: Act) -> int:
    return (await metered(store, partial(act, store))).steps


@pytest.mark.anyio
@pytest.mark.parametrize("has_statistics", [False, True], ids=["fresh", "analyzed"])
async def test_an_idle_poke_costs_the_same_with_forty_thousand_runs_as_with_forty(has_statistics: bool) -> None:
    few, many = await _opened(20, has_statistics), await _opened(MANY, has_statistics)
    for name, act in IDLE.items():
        assert await _steps(many, act) <= 1.2 * await _steps(few, act), name
    await few.close()
    await many.close()


async def _a_tick(store: SqliteStore) -> None:
    """A run from its creation to its end, with an effect of every kind."""
    await store.create_run(a_run(input=1, session_id="s1", dedupe_key="k"), None)
    held = await claim(store, "r")
    await store.append_streamed(held.lock, 1, 1, [NewEvent("said", "{}", CLOG)])
    await store.store_step(held.lock, 1, "pay", "1")
    await store.read_rows(RowsAsk(CLOG, "s1", "r", keys=(SESSION, run_row()), dedupe_keys=("k",), history=5))
    effects = Effects(writes=[RowWrite(SESSION, 0, "1"), RowWrite(run_row(), 0, "1")])
    effects.timers.append(SetTimer("t", NOW + 5, None))
    effects.attributes["colour"] = "1"
    await commit(store, held, Continue(), effects)
    await store.deliver_signal(a_signal("r", 1, signal_id="x"), None)
    await run_tick(store, "r", Done())
    await store.delete_run("r", None, None)


PAGES: dict[str, Act] = {
    "a whole run": _a_tick,
    "get_run": lambda store: store.get_run("waiting0000007"),
    "list_ticks": lambda store: store.list_ticks("waiting0000007", 0, 10),
    "newest runs": lambda store: store.list_runs(run_filter(), 10, None, True),
    "oldest runs": lambda store: store.list_runs(run_filter(), 10, None, False),
    "runs of a clog": lambda store: store.list_runs(run_filter(clog_id=CLOG), 10, None, True),
    "runs of a session": lambda store: store.list_runs(run_filter(session_id="s7"), 10, None, True),
    "runs of a parent": lambda store: store.list_runs(run_filter(parent_run_id="r"), 10, None, True),
    "count": lambda store: store.count_runs(run_filter(), 10),
    "count of a clog": lambda store: store.count_runs(run_filter(clog_id=CLOG), 10),
    "all events": lambda store: store.read_events(FeedFilter(), 0, 10),
    "events of a run": lambda store: store.read_events(FeedFilter(run_id="waiting0000007"), 0, 10),
    "events of a session": lambda store: store.read_events(FeedFilter(session_id="s7"), 0, 10),
    "events of a clog": lambda store: store.read_events(FeedFilter(clog_id=CLOG), 0, 10),
    "events of a correlation": lambda store: store.read_events(FeedFilter(correlation_id="waiting0000007"), 0, 10),
    "newest events": lambda store: store.read_newest_events(FeedFilter(), None, 10),
    "newest events of a run": lambda store: store.read_newest_events(FeedFilter(run_id="waiting0000007"), None, 10),
    "newest of a correlation": lambda store: store.read_newest_events(FeedFilter(correlation_id="r"), 10**9, 10),
    "events after the end": lambda store: store.read_events(FeedFilter(), 10**9, 10),
    "bounds": lambda store: store.event_bounds(),
    "a take": lambda store: store.take(Take("k", 1, 5, 10), None),
    "a look at a counter": lambda store: store.look_at_counter([Take("k", 1, 5, 10)]),
    "a reset": lambda store: store.reset_counter("k", None),
    "sweep of nothing": lambda store: store.sweep(SweepAsk(NOW, NOW, NOW, 10)),
    "sweep": lambda store: store.sweep(SweepAsk(NOW + 1, NOW + 1, NOW + 1, 10)),
}


@pytest.mark.anyio
async def test_a_tick_a_page_and_a_batch_cost_the_same_however_many_runs_there_are() -> None:
    few, many = await _opened(1_000), await _opened(MANY)
    dear = {}
    for name, act in PAGES.items():
        small, large = await _steps(few, act), await _steps(many, act)
        if large > 1.5 * small + 50:
            dear[name] = (small, large)
    await few.close()
    await many.close()
    assert dear == {}


@pytest.mark.anyio
async def test_a_tick_costs_the_same_however_old_its_run_is() -> None:
    store = await _opened(1)
    await pending(store)
    costs = []
    for number in range(300):
        if number in (20, 299):
            costs.append(await _steps(store, lambda store: run_tick(store, "r", Continue())))
        else:
            await run_tick(store, "r", Continue())
    await store.close()
    assert costs[1] <= 1.2 * costs[0]


BOUNDED_SCANS = {
    "SCAN runs USING COVERING INDEX runs_due": "the first lane: LIMIT 1",
    "SCAN r USING COVERING INDEX runs_created": "all runs by age: a page, or a count up to its cap",
    "SCAN events": "the oldest of all events: a batch",
    "SCAN ocean_clogs": "as many rows as clogs",
    "SCAN ocean_turns USING COVERING INDEX ocean_turns_run": "whether there is any: LIMIT 1",
    "SCAN sqlite_sequence": "one row",
    "SCAN json_each VIRTUAL TABLE INDEX 1:": "the requested types",
    "SCAN lanes": "as many rows as lanes",
    "SCAN below": "a run's descendants",
    "SCAN CONSTANT ROW": "one row",
    "SCAN n CONSTANT ROWS": "what is inserted",
    "SCAN n-ROW VALUES CLAUSE": "the same, as a newer SQLite shows it",
    "SCAN (subquery-1)": "the first lane",
}


async def _ends(store: SqliteStore) -> None:
    """Statements that need a deadline, a crash, a pause, a conflict or a child."""
    await store.register_clogs([ClogRecord(OTHER_CLOG, "1", has_on_end=True)])
    await pending(store, "late", deadline_at=NOW + 1, clog_id=OTHER_CLOG)
    await pending(store, "mother")
    await pending(store, "child", parent_run_id="mother", notify_parent=True, on_parent_end="cancel")
    await store.set_clog_paused(OTHER_CLOG, True, None, None)
    clock = store._clock
    assert isinstance(clock, ManualClock)
    clock.advance(1)
    await store.claim_due(NO_CLOGS)
    await store.agenda([CLOG, OTHER_CLOG])
    await run_tick(store, "late")
    await run_tick(store, "mother", Done())
    held = await claimed_run(store, "beaten")
    await store.take_turn(held.lock, [SESSION])
    await store.give_back(held.lock, held.tick)
    await store.commit_call(a_call(Effects(writes=[RowWrite(SESSION, 0, "1")]), run_id=None))
    await ended_run(store, "again", Ok(), clog_id=CLOG)
    await store.delete_session("s", None, None)


FILTERS: dict[str, Act] = {
    "attributes": lambda store: store.list_runs(run_filter(clog_id=CLOG, attributes={"colour": "1"}), 10, None, True),
    "two": lambda store: store.list_runs(run_filter(clog_id=CLOG, session_id="s1"), 10, None, False),
    "types": lambda store: store.read_events(FeedFilter(types=("run.created",)), 5, 10),
    "run and types": lambda store: store.read_events(FeedFilter(run_id="r", types=("run.created",)), 5, 10),
}


@pytest.mark.anyio
@pytest.mark.parametrize("has_statistics", [False, True], ids=["fresh", "analyzed"])
async def test_no_statement_of_the_store_scans_a_table_that_grows(has_statistics: bool) -> None:
    store = await _opened(1_000, has_statistics)
    scans: dict[str, str] = {}
    for act in (*IDLE.values(), *PAGES.values(), *FILTERS.values(), _ends):
        meter = await metered(store, partial(act, store))
        for statement in set(meter.statements):
            for line in await store.database.on_writer(partial(plan, statement=statement)):
                if line.startswith("SCAN") and re.sub(r"(?<=SCAN )\d+", "n", line) not in BOUNDED_SCANS:
                    scans[line] = statement
    await store.close()
    assert scans == {}


PATHS: list[tuple[Act, str]] = [
    (PAGES["all events"], "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"),
    (PAGES["events of a run"], "SEARCH events USING INDEX events_run (run_id=? AND seq>?)"),
    (PAGES["events of a session"], "SEARCH events USING INDEX events_session (session_id=? AND seq>?)"),
    (PAGES["events of a clog"], "SEARCH events USING INDEX events_clog (clog_id=? AND seq>?)"),
    (PAGES["events of a correlation"], "SEARCH events USING INDEX events_correlation (correlation_id=? AND seq>?)"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("act", "wanted"), PATHS, ids=[wanted for _, wanted in PATHS])
async def test_a_page_uses_its_index(act: Act, wanted: str) -> None:
    store = await _opened(20)
    meter = await metered(store, partial(act, store))
    lines: list[str] = []
    for statement in meter.statements:
        lines += await store.database.on_writer(partial(plan, statement=statement))
    await store.close()
    assert wanted in lines


PROBES = {
    "lanes": ["runs_due", "runs_due (clog_id=? AND priority=? AND due_at>?)"],
    "lane_due": ["runs_due (clog_id=? AND priority=? AND due_at>? AND due_at<?)"],
    "lane_due_count": ["runs_due (clog_id=? AND priority=? AND due_at>? AND due_at<?)"],
    "overdue": ["runs_deadline (deadline_at>? AND deadline_at<?)"],
    "lost_on_last_call": ["runs_last_call (lock_expires_at<?)"],
    "active_runs_of": ["runs_clog (clog_id=? AND status=?)"],
    "lapsed_leases": ["runs_leased (lock_expires_at<?)"],
    "queue_due": ["runs_queue (clog_id=? AND queue=? AND priority=? AND due_at>? AND due_at<?)"],
    "next_parked_lane": [
        "runs_parked (parked_on=? AND clog_id=? AND line=? AND priority>?)",
        "runs_parked (parked_on=? AND clog_id=? AND line>?)",
        "runs_parked (parked_on=? AND clog_id>?)",
    ],
    "parked_lane": ["runs_parked (parked_on=? AND clog_id=? AND line=? AND priority=?)"],
    "count_parked": ["runs_parked (parked_on=?)"],
    "key_holder": ["ocean_run_keys_held (key=?)"],
    "endings_due": ["runs_ending (clog_id=? AND due_at>? AND due_at<?)"],
    "first_ending": ["runs_ending (clog_id=? AND due_at>?)"],
    "next_owed": ["runs_deadline", "runs_last_call", "runs_leased"],
    "next_input_at": ["ocean_inbox_next (run_id=?)"],
    "due_inputs": ["ocean_inbox_next (run_id=? AND available_at<?)"],
    "unconsumed": ["ocean_inbox_open (run_id=? AND assigned_tick=?)"],
    "drop_timers": ["ocean_inbox_open (run_id=?)"],
    "cancel_timer": ["ocean_inbox_timer (run_id=? AND timer=?)"],
    "get_signal": ["ocean_inbox_signal (run_id=? AND signal_id=?)"],
    "earlier_life": ["events_run (run_id=?)"],
    "sweepable_runs": ["runs_ended (ended_at>? AND ended_at<?)", "runs_parent (parent_run_id=?)"],
    "sweep_requests": ["ocean_requests_created (created_at<?)"],
    "sweep_counters": ["ocean_counters_expires (expires_at>? AND expires_at<?)"],
    "release_turns": ["ocean_turns_run (run_id=?)"],
    "release_dedupe": ["ocean_dedupe_run (run_id=?)"],
    "children_to_cancel": ["runs_parent (parent_run_id=? AND status=?)"],
    "next_clog": ["runs_clog (clog_id>?)"],
    "next_clog_of_session": ["runs_session (session_id=? AND clog_id>?)"],
    "session_runs": ["runs_session (session_id=?)"],
    "history_ticks": ["PRIMARY KEY (run_id=? AND clog_id=?)"],
}


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_uses_its_index_and_sorts_nothing(name: str) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    values = dict.fromkeys(re.findall(r":(\w+)", QUERIES[name]), 1)
    lines = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", values)]
    db.close()
    for index in PROBES[name]:
        assert any(index in line for line in lines), lines
    assert not any("TEMP B-TREE" in line for line in lines), lines


@pytest.mark.parametrize("name", BUFFERED)
def test_writing_a_row_creates_no_temporary_table(name: str) -> None:
    """A check against a list of three or more values would create one for every row."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    sql, names = positional(QUERIES[name])
    steps = {row[1] for row in db.execute(f"EXPLAIN {sql}", [None] * len(names))}
    db.close()
    assert "OpenWrite" in steps
    assert not steps & {"OpenEphemeral", "OpenAutoindex", "SorterOpen"}
