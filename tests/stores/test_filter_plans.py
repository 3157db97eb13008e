"""Every documented filter of `list_runs` and `count_runs`: which index it uses, that it sorts nothing, and its cost."""

import re
import sqlite3
from functools import cache, partial
from typing import Any

import pytest

from bench.idle_poke import fill, metered, plan
from ocean import Within
from ocean.kernel.run_query import run_filter
from ocean.state.filters import RunFilter
from ocean.stores.sqlite.migrate import migrate
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, OTHER_CLOG

pytestmark = pytest.mark.anyio

NOW = ManualClock().now()
COLOUR = {"colour": "9"}
BETWEEN = {"colour": Within(gte="6", lt="9")}
ENDED = {"ended_from": NOW - 5}
CREATED = {"created_from": NOW + 1, "created_until": NOW + 5}

NARROWED: dict[str, tuple[dict[str, Any], str]] = {
    "created": (CREATED, "runs_created (created_at>? AND created_at<?)"),
    "created from": ({"created_from": NOW + 1}, "runs_created (created_at>?)"),
    "created until": ({"created_until": 5}, "runs_created (created_at<?)"),
    "status": ({"status": "failed"}, "runs_clog (clog_id=? AND status=?)"),
    "statuses": ({"status": ["failed", "idle"]}, "runs_clog (clog_id=? AND status=?)"),
    "status, created": (
        {"status": "done", **CREATED},
        "runs_clog (clog_id=? AND status=? AND created_at>? AND created_at<?)",
    ),
    "clog": ({"clog_id": CLOG}, "runs_clog (clog_id=? AND status=?)"),
    "clogs": ({"clog_id": [CLOG, OTHER_CLOG]}, "runs_clog (clog_id=? AND status=?)"),
    "clog, status": ({"clog_id": OTHER_CLOG, "status": "failed"}, "runs_clog (clog_id=? AND status=?)"),
    "clog, created": (
        {"clog_id": CLOG, **CREATED},
        "runs_clog (clog_id=? AND status=? AND created_at>? AND created_at<?)",
    ),
    "session": ({"session_id": "s7"}, "runs_session (session_id=? AND clog_id=? AND status=?)"),
    "sessions": ({"session_id": ["s7", "s8"]}, "runs_session (session_id=? AND clog_id=? AND status=?)"),
    "session, clog": (
        {"session_id": "s7", "clog_id": [CLOG, "x"]},
        "runs_session (session_id=? AND clog_id=? AND status=?)",
    ),
    "session, status": (
        {"session_id": "s7", "status": "failed"},
        "runs_session (session_id=? AND clog_id=? AND status=?)",
    ),
    "session, created": (
        {"session_id": "s7", **CREATED},
        "runs_session (session_id=? AND clog_id=? AND status=? AND created_at>? AND created_at<?)",
    ),
    "parent": ({"parent_run_id": "r"}, "runs_parent (parent_run_id=? AND status=?)"),
    "parents": ({"parent_run_id": ["r", "q"]}, "runs_parent (parent_run_id=? AND status=?)"),
    "parent, status": ({"parent_run_id": "r", "status": "done"}, "runs_parent (parent_run_id=? AND status=?)"),
    "parent, created": (
        {"parent_run_id": "r", **CREATED},
        "runs_parent (parent_run_id=? AND status=? AND created_at>? AND created_at<?)",
    ),
    "ended": (ENDED, "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)"),
    "ended, status": (
        {"ended_until": 5, "status": "failed"},
        "runs_clog_ended (clog_id=? AND status=? AND ended_at>? AND ended_at<?)",
    ),
    "ended later": ({"ended_from": NOW + 1}, "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)"),
    "ended, clog": ({"clog_id": CLOG, **ENDED}, "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)"),
    "attribute": (
        {"clog_id": CLOG, "attributes": COLOUR},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key=?)",
    ),
    "attribute of values": (
        {"clog_id": [CLOG, OTHER_CLOG], "attributes": {"colour": ["1", "9"]}},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key=?)",
    ),
    "attribute, created": (
        {"clog_id": CLOG, "attributes": COLOUR, **CREATED},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key=? AND created_at>? AND created_at<?)",
    ),
    "attribute within": (
        {"clog_id": [CLOG, OTHER_CLOG], "attributes": BETWEEN},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key>? AND sort_key<?)",
    ),
    "attribute above": (
        {"clog_id": CLOG, "attributes": {"colour": Within(gt="2")}},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key>? AND sort_key<?)",
    ),
}
"""Filters that an index covers: the cost is that of the page."""

PARTLY: dict[str, tuple[dict[str, Any], str]] = {
    "parent, clog": ({"parent_run_id": "r", "clog_id": CLOG}, "runs_parent (parent_run_id=? AND status=?)"),
    "parent, session": ({"parent_run_id": "r", "session_id": "s7"}, "runs_parent (parent_run_id=? AND status=?)"),
    "parent, attribute": (
        {"parent_run_id": "r", "clog_id": CLOG, "attributes": COLOUR},
        "runs_parent (parent_run_id=? AND status=?)",
    ),
    "attribute, status": (
        {"clog_id": CLOG, "status": "done", "attributes": COLOUR},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key=?)",
    ),
    "attribute, session": (
        {"clog_id": CLOG, "session_id": ["s7", "s8"], "attributes": COLOUR},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key=?)",
    ),
    "two attributes": (
        {"clog_id": CLOG, "attributes": COLOUR | {"size": [1, 2]}},
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key=?)",
    ),
    "attribute within, another, status, session, parent, created, ended": (
        {
            "clog_id": CLOG,
            "attributes": {"size": 1, **BETWEEN},
            "status": "done",
            "session_id": "s7",
            "parent_run_id": "r",
            **CREATED,
            **ENDED,
        },
        "ocean_attributes_value (clog_id=? AND name=? AND sort_key>? AND sort_key<?)",
    ),
    "ended, session": ({"session_id": "s7", **ENDED}, "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)"),
    "ended, parent": ({"parent_run_id": "r", **ENDED}, "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)"),
    "ended, created": ({**CREATED, **ENDED}, "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)"),
    "ended, attribute": (
        {"clog_id": OTHER_CLOG, "attributes": COLOUR, **ENDED},
        "runs_clog_ended (clog_id=? AND status=? AND ended_at>?)",
    ),
}
"""An index for the first part and the order; the rest is checked for each run."""

ALL = NARROWED | PARTLY


@cache
def _crowd(count: int, has_statistics: bool) -> bytes:
    """`count` waiting runs of one clog and as many done ones of another, with an attribute each."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
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


async def _ask(store: SqliteStore, where: RunFilter) -> None:
    """Two pages in either order, and a count."""
    for is_descending in (True, False):
        page = await store.list_runs(where, 5, None, is_descending)
        if page.next_cursor is not None:
            await store.list_runs(where, 5, page.next_cursor, is_descending)
    await store.count_runs(where, 5)


async def _lines(store: SqliteStore, where: RunFilter) -> set[str]:
    meter = await metered(store, partial(_ask, store, where))
    lines: set[str] = set()
    for statement in meter.statements:
        lines |= set(await store.database.on_writer(partial(plan, statement=statement)))
    return lines


@pytest.mark.parametrize("has_statistics", [False, True], ids=["fresh", "analyzed"])
@pytest.mark.parametrize("name", ALL)
async def test_a_filter_uses_its_index_and_sorts_nothing(name: str, has_statistics: bool) -> None:
    query, index = ALL[name]
    store = await _opened(50, has_statistics)
    lines = await _lines(store, run_filter(**query))
    await store.close()
    assert any(line.endswith(index) for line in lines), lines
    assert [line for line in lines if "TEMP B-TREE" in line or re.match(r"SCAN (?!\(subquery|json_each)", line)] == []


@pytest.mark.parametrize("name", NARROWED)
async def test_a_narrow_filter_reads_only_its_index(name: str) -> None:
    """Everything but the returned runs comes from covering indexes: no row is read and then discarded."""
    query, index = NARROWED[name]
    store = await _opened(50)
    lines = await _lines(store, run_filter(**query))
    await store.close()
    assert {line.split(" USING ")[1].split(index.split()[0])[0] for line in lines if index in line} == {
        "COVERING INDEX "
    }


async def test_a_page_of_all_runs_walks_the_index_by_creation() -> None:
    store = await _opened(50)
    lines = await _lines(store, run_filter())
    await store.close()
    assert "SCAN r USING COVERING INDEX runs_created" in lines
    assert not any("TEMP B-TREE" in line for line in lines)


@pytest.mark.parametrize(
    "query", [{}, {"clog_id": CLOG, "status": "failed"}, {"session_id": "s7"}, CREATED, {"parent_run_id": "r"}], ids=str
)
async def test_runs_that_ended_incomplete_are_read_from_their_own_index(query: dict[str, Any]) -> None:
    where = run_filter(end_incomplete=True, **query)
    few, many = await _opened(50), await _opened(1_000)
    lines = await _lines(few, where) | await _lines(many, where)
    assert all("runs_end_incomplete" in line for line in lines if " r " in line), lines
    assert not any("TEMP B-TREE" in line for line in lines)
    small, large = [(await metered(store, partial(_ask, store, where))).steps for store in (few, many)]
    assert large <= small + 20
    await few.close()
    await many.close()


async def test_a_narrow_filter_costs_the_same_among_forty_thousand_runs_as_among_two_thousand() -> None:
    few, many = await _opened(1_000), await _opened(20_000)
    dear = {}
    for name, (query, _) in NARROWED.items():
        where = run_filter(**query)
        small, large = [(await metered(store, partial(_ask, store, where))).steps for store in (few, many)]
        if large > 1.5 * small + 50:
            dear[name] = (small, large)
    await few.close()
    await many.close()
    assert dear == {}


DEEP: dict[str, dict[str, Any]] = {
    "created": {},
    "created in a span": {"created_from": 5, "created_until": NOW + 5},
    "clog": {"clog_id": CLOG},
    "status": {"status": "done"},
    "ended at one moment": {"ended_from": 5},
    "ended at one moment, until": {"ended_until": NOW + 5},
    "attribute": {"clog_id": CLOG, "attributes": {"colour": "1"}},
    "attribute within": {"clog_id": CLOG, "attributes": {"colour": Within(gte="0")}},
}


@pytest.mark.parametrize("is_descending", [True, False], ids=["descending", "ascending"])
@pytest.mark.parametrize("name", DEEP)
async def test_a_late_page_costs_as_much_as_the_first(name: str, is_descending: bool) -> None:
    where = run_filter(**DEEP[name])
    store = await _opened(1_000)
    first = await metered(store, lambda: store.list_runs(where, 5, None, is_descending))
    far = (await store.list_runs(where, 150, None, is_descending)).next_cursor
    assert far is not None
    later = await metered(store, lambda: store.list_runs(where, 5, far, is_descending))
    await store.close()
    assert later.steps <= first.steps + 50
