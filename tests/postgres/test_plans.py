"""What a claim touches: the due runs it looks at, however many sleep or have ended, and whatever statistics say."""

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from ocean.stores.postgres.hints import hints

from ocean.kernel.store import ClaimableClog, ClaimAsk
from ocean.stores.postgres.link import FETCH
from tests.postgres.server import blocking, fresh_database

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("plans")]

ENDED, ASLEEP, BURST = 1_000_000, 100_000, 20_000
FAR = 9_000_000_000_000
ASK = ClaimAsk({"c": ClaimableClog("c", 30_000, "1", False)}, "i", 8)


async def make(db: Any, prefix: str, count: int, status: str, *, due_at: str = "NULL", ended_at: str = "NULL") -> None:
    wake_at, ready_at = (due_at if status == wanted else "NULL" for wanted in ("waiting", "pending"))
    await db.execute(
        "INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, due_at, wake_at,"
        " ready_at, last_call, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count,"
        " created_at, updated_at, ended_at)"
        f" SELECT '{prefix}-' || g, 's', 'c', 'x', 5, '{status}', 0, {due_at}, {wake_at}, {ready_at}, 0, 0, 0, 0, 0,"
        f" 1, 0, 0, g, g, {ended_at} FROM generate_series(1, {count}) g"
    )


async def prepare(db: Any) -> None:
    await db.execute("INSERT INTO ocean_sessions VALUES ('s', 1) ON CONFLICT DO NOTHING")
    await db.execute(
        "INSERT INTO ocean_clogs (clog_id, version, has_on_end, registered_at) VALUES ('c', '1', 0, 1)"
        " ON CONFLICT DO NOTHING"
    )


async def build(url: str) -> None:
    """A million rows are made fast without triggers and indexes; these are made again afterwards."""
    db = await asyncpg.connect(url, command_timeout=600)
    await prepare(db)
    indexes = await db.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'runs' AND indexname <> 'runs_pkey'"
    )
    await db.execute("ALTER TABLE runs DISABLE TRIGGER ALL")
    for index in indexes:
        await db.execute(f"DROP INDEX {index['indexname']}")
    await make(db, "ended", ENDED, "done", ended_at="g")
    await make(db, "asleep", ASLEEP, "waiting", due_at=f"{FAR} + g")
    for index in indexes:
        await db.execute(index["indexdef"])
    await db.execute("ALTER TABLE runs ENABLE TRIGGER ALL")
    await db.close()


@pytest.fixture(scope="module")
def full() -> str:
    """100,000 runs that sleep and 1,000,000 that have ended. Never returned: nobody else could use it."""
    url = fresh_database(has_test_clock=False)
    blocking(build(url))
    return url


@pytest.fixture
async def db(full: str, anyio_backend: Any) -> AsyncIterator[Any]:
    found = await asyncpg.connect(full)
    yield found
    await found.execute("DELETE FROM runs WHERE run_id LIKE 'due-%'")
    await found.close()


async def looked_at(db: Any, sql: str, *values: Any) -> tuple[Any, int, int]:
    """The answer, and how many walks through the whole table and how many rows by index it took."""
    async with db.transaction():
        answer = await db.fetchval(sql, *values)
        row = await db.fetchrow("SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'runs'")
    return answer, row["seq_scan"], row["idx_tup_fetch"]


async def look(db: Any) -> tuple[list[Any], int, int]:
    needs = json.dumps([need.as_json() for need in hints(ASK)])
    found, seq_scans, rows = await looked_at(db, f"SELECT found FROM ({FETCH}) f", needs)
    return json.loads(found), seq_scans, rows


async def test_an_idle_look_costs_a_few_rows_however_many_sleep_or_have_ended(db: Any) -> None:
    found, seq_scans, rows = await look(db)
    assert [name for name, *_ in found if name == "run"] == []
    assert seq_scans == 0
    assert rows < 20


@pytest.mark.parametrize("is_analyzed", [False, True])
async def test_a_claim_costs_what_it_claims(db: Any, is_analyzed: bool) -> None:
    await make(db, "due", 3, "pending", due_at="g")
    if is_analyzed:
        await db.execute("ANALYZE runs")
    found, seq_scans, rows = await look(db)
    assert len([name for name, *_ in found if name == "run"]) == 3
    assert seq_scans == 0
    assert rows < 60


async def test_a_claim_right_after_a_burst_needs_no_statistics(real_database: str) -> None:
    db = await asyncpg.connect(real_database)
    await prepare(db)
    assert await db.fetchval("SELECT count(*) FROM pg_stats WHERE tablename = 'runs'") == 0
    await make(db, "due", BURST, "pending", due_at="g")
    found, seq_scans, rows = await look(db)
    assert len([name for name, *_ in found if name == "run"]) == 8
    assert seq_scans == 0
    assert rows < 150
    await db.close()
