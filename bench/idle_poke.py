"""What does an idle poke cost while many runs sleep?

Fills a database with waiting and finished runs, pokes it once with nothing due, and compares the poke with one of an
empty database: its statements, their query plans, and the steps of SQLite's virtual machine. Steps do not depend on
the machine, so the result is the same everywhere.

    python bench/idle_poke.py --runs 100000
"""

import argparse
import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from ocean import Clog, Ok, Outcome, Tick
from ocean.compose import Ocean, open_store
from ocean.state.clock import SystemClock
from ocean.stores.sqlite.store import SqliteStore

DAY_MS = 86_400_000

NUMBERS = "WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < :count) "
SESSIONS = "INSERT OR IGNORE INTO ocean_sessions SELECT DISTINCT 's' || (i % 100), :now FROM numbers"
RUNS = """
INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, max_attempts, due_at,
  last_call, wake_at, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count, created_at,
  updated_at, ended_at)
SELECT :kind || printf('%07d', i), 's' || (i % 100), :clog_id, :kind || printf('%07d', i), i % 10, :status, 0, 3,
  :wake_at + i, 0, :wake_at + i, 1, 1, 0, 0, 1, 1, 0, :now - :count + i, :now, :ended_at
FROM numbers"""
DETAILS = """
INSERT INTO ocean_run_details (run_id, body_hash, retry, notify_parent, on_parent_end)
SELECT :kind || printf('%07d', i), '', '{}', 0, 'live' FROM numbers"""
ATTRIBUTES = """
INSERT INTO ocean_attributes SELECT :kind || printf('%07d', i), 'colour', :clog_id, 's' || (i % 5),
  '"' || (i % 5) || '"', :now - :count + i FROM numbers"""
INPUTS = """
INSERT INTO ocean_inbox (run_id, number, kind, available_at, created_at, assigned_tick, consumed_tick)
SELECT :kind || printf('%07d', i), 1, 'created', :now, :now, 1, 1 FROM numbers"""
EVENTS = """
INSERT INTO events (ts, session_id, run_id, run_seq, clog_id, type, payload, correlation_id)
SELECT :now, 's' || (i % 100), :kind || printf('%07d', i), 1, :clog_id, 'run.created', '{}', :kind || printf('%07d', i)
FROM numbers"""


def fill(db: sqlite3.Connection, kind: str, count: int, clog_id: str, now: int) -> None:
    """Insert `count` runs as Ocean would store them; `kind` is "waiting" (until tomorrow) or "done"."""
    values = {
        "kind": kind,
        "count": count,
        "clog_id": clog_id,
        "now": now,
        "status": kind,
        "wake_at": now + DAY_MS if kind == "waiting" else None,
        "ended_at": now if kind == "done" else None,
    }
    db.execute("BEGIN IMMEDIATE")
    for statement in (SESSIONS, RUNS, DETAILS, ATTRIBUTES, INPUTS, EVENTS):
        head, select = statement.split("SELECT", 1)
        db.execute(f"{head}{NUMBERS}SELECT{select}", values)
    db.execute("COMMIT")


@dataclass
class Meter:
    """Counts the steps of SQLite's virtual machine and keeps the text of every statement."""

    steps: int = 0
    statements: list[str] = field(default_factory=list)

    def step(self) -> int:
        self.steps += 1
        return 0

    def attach(self, db: sqlite3.Connection) -> None:
        db.set_progress_handler(self.step, 1)
        db.set_trace_callback(self.statements.append)

    def detach(self, db: sqlite3.Connection) -> None:
        db.set_progress_handler(None, 1)
        db.set_trace_callback(None)


async def metered(store: SqliteStore, act: Callable[[], Awaitable[object]]) -> Meter:
    """Run `act` and return the steps and statements of both connections."""
    meter = Meter()
    await store.database.on_writer(meter.attach)
    await store.database.read(meter.attach)
    await act()
    await store.database.on_writer(meter.detach)
    await store.database.read(meter.detach)
    return meter


def plan(db: sqlite3.Connection, statement: str) -> list[str]:
    """Return the query plan of a statement; nothing for BEGIN, SAVEPOINT and the like."""
    if _bare(statement).split()[0].upper() not in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE"):
        return []
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]


def _bare(statement: str) -> str:
    lines = statement.splitlines()
    return " ".join(line.strip() for line in lines if not line.strip().startswith("--"))


sleeper = Clog("sleeper")


@sleeper.on_advance
async def advance(tick: Tick) -> Outcome:
    return Ok()


async def idle_poke(path: Path, waiting: int, finished: int, shows_plans: bool) -> int:
    """Return the steps of one `advance()` with nothing due."""
    clock = SystemClock()
    store = await open_store(f"sqlite:///{path}", clock)
    assert isinstance(store, SqliteStore)
    ocean = Ocean(store, [sleeper], clock)
    await ocean.start()
    if waiting:
        await store.database.on_writer(lambda db: fill(db, "waiting", waiting, "sleeper", clock.now()))
    if finished:
        await store.database.on_writer(lambda db: fill(db, "done", finished, "sleeper", clock.now()))
    meter = await metered(store, ocean.advance)
    print(
        f"{waiting:>9,} waiting, {finished:>9,} finished: {meter.steps:>6,} steps, {len(meter.statements)} statements"
    )
    if shows_plans:
        await store.database.read(lambda db: _show_plans(db, meter.statements))
    await ocean.close()
    return meter.steps


def _show_plans(db: sqlite3.Connection, statements: list[str]) -> None:
    for statement in dict.fromkeys(statements):
        lines = plan(db, statement)
        if lines:
            print(f"\n  {_bare(statement)[:110]}")
            for line in lines:
                print(f"    {line}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000, help="how many waiting runs (default 100000)")
    parser.add_argument("--finished", type=int, default=0, help="how many finished runs in addition (default 0)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        empty = asyncio.run(idle_poke(Path(folder) / "empty.db", 0, 0, False))
        small = asyncio.run(idle_poke(Path(folder) / "small.db", 10, 0, False))
        full = asyncio.run(idle_poke(Path(folder) / "full.db", given.runs, given.finished, True))
    print(f"ten sleepers in all lanes: {small / empty:.1f} times an empty database")
    print(f"{given.runs:,} sleepers: {full / small:.2f} times ten")


if __name__ == "__main__":
    main()
