"""What a read touches with any statistics: none, those of a much smaller past, or the right ones."""

import json
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from bench.idle_poke import fill as make_runs
from ocean.kernel.run_query import run_filter
from ocean.state.filters import FeedFilter
from ocean.stores.postgres.client.connection import install_test_clock
from ocean.stores.postgres.client.reading import READ, WALK
from ocean.stores.postgres.listing import count, feed, page
from ocean.stores.postgres.migrate import migrate as migrate_server
from ocean.stores.sqlite.migrate import migrate
from tests.conformance.kit import CLOG, OTHER_CLOG
from tests.postgres.copy_rows import fill
from tests.postgres.server import blank_database, blocking
from tests.stores.dump import dump
from tests.stores.test_filter_plans import ALL, DEEP, NARROWED, NOW

pytestmark = pytest.mark.anyio

FEW, MANY = 3, 3_000
RUN = "waiting0000005"
FEEDS = [
    FeedFilter(),
    FeedFilter(run_id=RUN),
    FeedFilter(run_id=RUN, clog_id=OTHER_CLOG),
    FeedFilter(session_id="s7"),
    FeedFilter(session_id="s7", clog_id=CLOG),
    FeedFilter(session_id="nobody's", clog_id=CLOG),
    FeedFilter(correlation_id=RUN, session_id="s7"),
    FeedFilter(clog_id=CLOG, types=("run.created",)),
]
VERBS: dict[str, dict[str, Any]] = {
    "agenda": {},
    "event_bounds": {},
    "failed_run": {"run_id": RUN, "key": "k"},
    "holder": {"clog_id": CLOG, "session_id": "s7", "dedupe_key": "k"},
    "inputs": {"run_id": RUN, "after": 0, "limit": 10},
    "key": {"key": "k"},
    "keys": {"after": "", "limit": 10},
    "preview": {"run_id": RUN, "most_inputs": {CLOG: 10}},
    "rows": {
        "clog_id": CLOG,
        "session_id": "s7",
        "run_id": RUN,
        "keys": [["run", CLOG, "", RUN, 0, ""], ["session", CLOG, "s7", "", 0, ""]],
        "dedupe_keys": ["k"],
        "ticks": [1],
        "history": 3,
    },
    "run": {"run_id": RUN},
    "standing": {"run_id": RUN},
    "step": {"run_id": RUN, "tick": 1, "name": "n"},
    "survey": {"run_id": RUN},
    "ticks": {"run_id": RUN, "after": 0, "limit": 10},
}


async def crowd(url: str, count: int) -> None:
    """`count` waiting runs of one clog and as many done ones of another, with an attribute each."""
    source = sqlite3.connect(":memory:", isolation_level=None)
    migrate(source)
    make_runs(source, "waiting", count, CLOG, NOW)
    make_runs(source, "done", count, OTHER_CLOG, NOW)
    await fill(url, dump(source))
    source.close()


async def prepare(url: str, known: str) -> None:
    db = await asyncpg.connect(url)
    await migrate_server(db)
    # Nothing is due: due runs are counted, up to a cap.
    await install_test_clock(db)
    if known == "of few":
        await crowd(url, FEW)
        await db.execute("ANALYZE")
    await crowd(url, MANY)
    if known == "right":
        await db.execute("ANALYZE")
    await db.close()


@pytest.fixture(scope="module", params=["none", "of few", "right"], ids=lambda known: f"statistics {known}")
def full(request: pytest.FixtureRequest) -> str:
    """Never returned: other tests would find its statistics."""
    url = blank_database()
    blocking(prepare(url, request.param))
    return url


@pytest.fixture
async def db(full: str, anyio_backend: Any) -> AsyncIterator[Any]:
    found = await asyncpg.connect(full)
    yield found
    await found.close()


async def cost(db: Any, sql: str, *values: Any) -> tuple[int, int]:
    """How many tables were scanned, and how many rows were fetched by an index."""
    touched = "SELECT coalesce(sum(seq_scan), 0) AS scans, coalesce(sum(idx_tup_fetch), 0) AS rows FROM "
    tables = "pg_stat_xact_user_tables WHERE relname NOT IN ('ocean_clogs', 'ocean_test_clock')"
    async with db.transaction():
        before = await db.fetchrow(touched + tables)
        await db.fetch(sql, *values)
        after = await db.fetchrow(touched + tables)
    return after["scans"] - before["scans"], after["rows"] - before["rows"]


async def walk(db: Any, statement: str, values: list[Any]) -> tuple[int, int]:
    return await cost(db, WALK, statement, json.dumps(values))


async def test_a_list_uses_its_index_and_costs_its_page(db: Any) -> None:
    scanned, dear = {}, {}
    for name, (query, _) in ALL.items():
        where = run_filter(**query)
        statements = (page(where, 6, None, True), page(where, 6, None, False), count(where, 6))
        costs = [await walk(db, *statement) for statement in statements]
        scanned[name] = sum(scans for scans, _ in costs)
        dear[name] = max(rows for _, rows in costs)
    assert {name for name, scans in scanned.items() if scans} == set()
    assert {name: dear[name] for name in NARROWED if dear[name] > 60} == {}


async def test_a_late_page_costs_as_much_as_the_first(db: Any) -> None:
    for query in DEEP.values():
        where = run_filter(**query)
        for is_descending in (True, False):
            first = await walk(db, *page(where, 6, None, is_descending))
            statement, values = page(where, 300, None, is_descending)
            *_, last = await db.fetch(WALK, statement, json.dumps(values))
            after = tuple(json.loads(last["found"])[0])
            scans, rows = await walk(db, *page(where, 6, after, is_descending))
            assert (scans, rows <= first[1] + 10) == (0, True), (query, is_descending, first, rows)


@pytest.mark.parametrize("where", FEEDS, ids=str)
async def test_a_feed_uses_the_narrowest_index(db: Any, where: FeedFilter) -> None:
    scans, rows = await walk(db, *feed(where, 0, 10))
    assert scans == 0
    assert rows <= 20


async def test_every_other_read_costs_a_few_rows(db: Any) -> None:
    dear = {verb: await cost(db, READ, verb, json.dumps(given)) for verb, given in VERBS.items()}
    assert {verb: found for verb, found in dear.items() if found[0] or found[1] > 20} == {}
