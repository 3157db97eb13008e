"""Very many runs, inserted fast: with one statement per table, without the store."""

from typing import Any

import asyncpg

from tests.conformance.kit import CLOG

ENDED, ASLEEP, CHILDREN, AGE, BURST = 1_000_000, 100_000, 5_000, 10_000, 20_000
FAR = 9_000_000_000_000
OLD = ("old-1", "old-2")
"""Runs that have had AGE ticks, inputs and rows."""
OLD_TOO = ("old-3", "old-4")
"""The same, for tests that do not end them."""

RUNS = """
INSERT INTO runs (run_id, session_id, clog_id, parent_run_id, correlation_id, priority, status, attempt, due_at,
  wake_at, ready_at, last_call, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count,
  created_at, updated_at, ended_at)
SELECT '{prefix}-' || lpad(g::text, 7, '0'), 's', '{clog}', {parent}, 'x', 5, '{status}', 0, {due_at},
  CASE WHEN '{status}' = 'waiting' THEN {due_at} END, CASE WHEN '{status}' = 'pending' THEN {due_at} END,
  false, 0, 0, false, false, 1, 1, {pending}, g, g, {ended_at} FROM generate_series(1, {count}) g
"""
DETAILS = """
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end)
SELECT run_id, 'h', '{{}}', false, 'live' FROM runs
WHERE created_at <= 50 OR created_at BETWEEN {count} - 50 AND {count}
ON CONFLICT DO NOTHING
"""
"""For the first and the last runs, which lists return."""
ATTRIBUTES = """
INSERT INTO ocean_attributes (run_id, name, clog_id, sort_key, value, created_at)
SELECT run_id, 'size', clog_id, 'n' || lpad(created_at::text, 9, '0'), created_at::text, created_at
FROM runs WHERE status = 'done' AND created_at <= 20000
"""
HISTORY = """
INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, last_call, lock_epoch, tick,
  tick_open, paused, event_count, inbox_count, pending_count, created_at, updated_at)
VALUES ('{run}', 's', '{clog}', '{run}', 5, 'idle', 0, false, {age}, {age}, false, false, {age}, {age}, 0, 1, 1);
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end)
VALUES ('{run}', 'h', '{{}}', false, 'live');
INSERT INTO ocean_inbox (run_id, number, kind, body, available_at, created_at, assigned_tick, consumed_tick)
SELECT '{run}', g, 'signal', 'null', g, g, g, g FROM generate_series(1, {age}) g;
INSERT INTO ocean_ticks (run_id, tick, reason, calls, epoch, instance_id, version, first_claimed_at, claimed_at,
  outcome, committed_at)
SELECT '{run}', g, 'signal', 1, g, 'i', '1', g, g, 'ok', g FROM generate_series(1, {age}) g;
INSERT INTO ocean_storage_tick (run_id, clog_id, tick, row_id, value, version)
SELECT '{run}', '{clog}', g, 'row', '1', 1 FROM generate_series(1, {age}) g;
INSERT INTO events (seq, ts, session_id, run_id, run_seq, tick, clog_id, type, payload, correlation_id)
SELECT nextval('ocean_cursor'), g, '{run}', '{run}', g, g, '{run}', 'tick.committed', '{{}}', '{run}'
FROM generate_series(1, {age}) g;
"""
"""Its events have their own session and clog: feeds of these are as long as the run's."""
INPUTS = """
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end)
SELECT run_id, 'h', '{}', false, 'live' FROM runs WHERE run_id LIKE 'due-%';
INSERT INTO ocean_inbox (run_id, number, kind, body, available_at, created_at)
SELECT run_id, 1, 'created', 'null', due_at, created_at FROM runs WHERE run_id LIKE 'due-%';
INSERT INTO events (seq, ts, session_id, run_id, run_seq, clog_id, type, payload, correlation_id)
SELECT nextval('ocean_cursor'), created_at, 's', run_id, 1, clog_id, 'run.created', '{}', run_id
FROM runs WHERE run_id LIKE 'due-%';
"""


async def make_runs(db: Any, prefix: str, count: int, status: str, **given: str) -> None:
    """`given` are SQL expressions, in which `g` is the run's number."""
    null = "NULL::bigint"
    names = {"clog": CLOG, "parent": "NULL", "due_at": null, "ended_at": null, "pending": "0"} | given
    await db.execute("INSERT INTO ocean_sessions VALUES ('s', 1) ON CONFLICT DO NOTHING")
    await db.execute(RUNS.format(prefix=prefix, count=count, status=status, **names))


async def make_burst(url: str) -> None:
    """Create many runs at once."""
    db = await asyncpg.connect(url)
    try:
        await make_runs(db, "due", BURST, "pending", due_at="g", pending="1")
        await db.execute(INPUTS)
    finally:
        await db.close()


async def make_crowd(url: str) -> None:
    """Insert a million rows fast, without triggers and indexes, and create these again afterwards."""
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
        await make_runs(db, "child", CHILDREN, "waiting", due_at=f"{FAR} + g", parent="'asleep-0000001'")
        for index in indexes:
            await db.execute(index["indexdef"])
        await db.execute("ALTER TABLE runs ENABLE TRIGGER ALL")
        for count in (ENDED, ASLEEP, CHILDREN, 20_000):
            await db.execute(DETAILS.format(count=count))
        await db.execute(ATTRIBUTES)
        for run in (*OLD, *OLD_TOO):
            await db.execute(HISTORY.format(run=run, clog=CLOG, age=AGE))
    finally:
        await db.close()
