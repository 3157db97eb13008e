"""Very many runs, made as fast as a server can: by one statement each, past the store."""

from typing import Any

import asyncpg

from tests.conformance.kit import CLOG

ENDED, ASLEEP, AGE = 1_000_000, 100_000, 10_000
FAR = 9_000_000_000_000
OLD = "old"
"""A run that has had so many ticks, inputs and rows as AGE says."""

RUNS = """
INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, due_at, wake_at, ready_at,
  last_call, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count, created_at, updated_at,
  ended_at)
SELECT '{prefix}-' || lpad(g::text, 7, '0'), 's', '{clog}', 'x', 5, '{status}', 0, {due_at},
  CASE WHEN '{status}' = 'waiting' THEN {due_at} END, CASE WHEN '{status}' = 'pending' THEN {due_at} END,
  false, 0, 0, false, false, 1, 0, 0, g, g, {ended_at} FROM generate_series(1, {count}) g
"""
DETAILS = """
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end)
SELECT run_id, 'h', '{{}}', false, 'live' FROM runs WHERE created_at <= 50 OR created_at BETWEEN {count} - 50 AND {count}
ON CONFLICT DO NOTHING
"""
"""Of the first and the last, which lists show."""
HISTORY = f"""
INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, last_call, lock_epoch, tick,
  tick_open, paused, event_count, inbox_count, pending_count, created_at, updated_at)
VALUES ('{OLD}', 's', '{CLOG}', '{OLD}', 5, 'idle', 0, false, {AGE}, {AGE}, false, false, {2 * AGE}, {AGE}, 0, 1, 1);
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end)
VALUES ('{OLD}', 'h', '{{}}', false, 'live');
INSERT INTO ocean_inbox (run_id, number, kind, body, available_at, created_at, assigned_tick, consumed_tick)
SELECT '{OLD}', g, 'signal', 'null', g, g, g, g FROM generate_series(1, {AGE}) g;
INSERT INTO ocean_ticks (run_id, tick, reason, calls, epoch, instance_id, version, first_claimed_at, claimed_at, outcome,
  committed_at)
SELECT '{OLD}', g, 'signal', 1, g, 'i', '1', g, g, 'ok', g FROM generate_series(1, {AGE}) g;
INSERT INTO ocean_storage_tick (run_id, clog_id, tick, row_id, value, version)
SELECT '{OLD}', '{CLOG}', g, 'row', '1', 1 FROM generate_series(1, {AGE}) g;
INSERT INTO events (seq, ts, session_id, run_id, run_seq, tick, clog_id, type, payload, correlation_id)
SELECT nextval('ocean_cursor'), g, 's', '{OLD}', g, g / 2, '{CLOG}', 'tick.committed', '{{}}', '{OLD}'
FROM generate_series(1, {2 * AGE}) g;
"""


async def make_runs(
    db: Any, prefix: str, count: int, status: str, *, clog: str = CLOG, due_at: str = "NULL::bigint", ended_at: str = "NULL::bigint"
) -> None:
    names = {"prefix": prefix, "clog": clog, "status": status, "due_at": due_at, "ended_at": ended_at, "count": count}
    await db.execute("INSERT INTO ocean_sessions VALUES ('s', 1) ON CONFLICT DO NOTHING")
    await db.execute(RUNS.format(**names))


async def make_crowd(url: str) -> None:
    """A million rows are made fast without triggers and indexes; these are made again afterwards."""
    db = await asyncpg.connect(url, command_timeout=600)
    try:
        indexes = await db.fetch(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'runs' AND indexname <> 'runs_pkey'"
        )
        await db.execute("SET maintenance_work_mem = '256MB'")
        await db.execute("ALTER TABLE runs DISABLE TRIGGER ALL")
        for index in indexes:
            await db.execute(f"DROP INDEX {index['indexname']}")
        await make_runs(db, "ended", ENDED, "done", ended_at="g")
        await make_runs(db, "asleep", ASLEEP, "waiting", due_at=f"{FAR} + g")
        for index in indexes:
            await db.execute(index["indexdef"])
        await db.execute("ALTER TABLE runs ENABLE TRIGGER ALL")
        for count in (ENDED, ASLEEP):
            await db.execute(DETAILS.format(count=count))
        await db.execute(HISTORY)
    finally:
        await db.close()
