"""Migrations: numbered, forward only, safe to run concurrently."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from bench.idle_poke import fill
from ocean.compose import open_store
from ocean.state.clock import SystemClock
from ocean.state.errors import StoreUnusable
from ocean.stores.sqlite.migrate import migrate, migrations
from tests.stores.dump import table_names

TABLES = {
    "events",
    "ocean_attributes",
    "ocean_clogs",
    "ocean_counters",
    "ocean_dedupe",
    "ocean_inbox",
    "ocean_log_floor",
    "ocean_requests",
    "ocean_run_details",
    "ocean_sessions",
    "ocean_steps",
    "ocean_storage_global",
    "ocean_storage_run",
    "ocean_storage_session",
    "ocean_storage_tick",
    "ocean_ticks",
    "ocean_turns",
    "runs",
}


def _opened(path: Path | str = ":memory:") -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def _schema(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()


def test_migration_numbers_start_at_one_without_a_gap() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_fresh_database_gets_every_table_and_the_newest_version() -> None:
    db = _opened()
    migrate(db)
    assert set(table_names(db)) - {"sqlite_sequence"} >= TABLES
    assert db.execute("PRAGMA user_version").fetchone()[0] == migrations()[-1][0]
    assert not db.in_transaction
    db.close()


@pytest.mark.parametrize("version", [number for number, _ in migrations()[:-1]])
def test_a_database_of_an_older_version_becomes_like_a_fresh_one_and_keeps_its_runs(version: int) -> None:
    old, fresh = _opened(), _opened()
    for number, script in migrations():
        if number <= version:
            old.executescript(script)
    old.execute(f"PRAGMA user_version = {version}")
    fill(old, "done", 10, "c", 1_000)
    migrate(old)
    migrate(fresh)
    assert {name for name, _ in _schema(old)} == {name for name, _ in _schema(fresh)}
    for table in table_names(fresh):
        assert _columns(old, table) == _columns(fresh, table)
    assert old.execute("SELECT count(*) FROM runs WHERE clog_id = 'c' AND status = 'done'").fetchone()[0] == 10
    assert old.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    old.close()
    fresh.close()


def _columns(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    return db.execute(f'PRAGMA table_info("{table}")').fetchall()


def test_migrating_again_changes_nothing() -> None:
    db = _opened()
    migrate(db)
    before = _schema(db), db.total_changes
    migrate(db)
    assert (_schema(db), db.total_changes) == before
    db.close()


@pytest.mark.anyio
async def test_a_schema_newer_than_the_code_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "ocean.db"
    db = _opened(path)
    migrate(db)
    db.execute("PRAGMA user_version = 999")
    before = _schema(db)
    with pytest.raises(StoreUnusable, match=f"schema 999, this Ocean supports up to {migrations()[-1][0]}; upgrade"):
        await open_store(f"sqlite:///{path}", SystemClock())
    assert _schema(db) == before
    assert db.execute("PRAGMA user_version").fetchone()[0] == 999
    db.close()


def test_runs_and_keys_of_the_first_schema_are_neither_delayed_nor_debounced_after_it() -> None:
    db = _opened()
    db.executescript(migrations()[0][1])
    db.execute("PRAGMA user_version = 1")
    db.execute("INSERT INTO ocean_sessions VALUES ('s', 1)")
    for run_id, status, wake_at in (("idle", "idle", None), ("backing-off", "pending", 9), ("asleep", "waiting", 9)):
        db.execute(
            "INSERT INTO runs (run_id, session_id, clog_id, correlation_id, priority, status, attempt, last_call,"
            " wake_at, lock_epoch, tick, tick_open, paused, event_count, inbox_count, pending_count,"
            " created_at, updated_at)"
            " VALUES (?, 's', 'c', 'x', 5, ?, 0, 0, ?, 0, 0, 0, 0, 0, 0, 0, 1, 1)",
            (run_id, status, wake_at),
        )
    db.execute("INSERT INTO ocean_dedupe VALUES ('c', 's', 'k', 'idle', NULL)")
    migrate(db)
    assert set(db.execute("SELECT delayed_by, delay_key FROM runs").fetchall()) == {(None, None)}
    assert db.execute("SELECT debounced FROM ocean_dedupe").fetchall() == [(0,)]
    for refused in ("delayed_by = 'rate'", "delayed_by = 'luck', delay_key = 'k'", "delay_key = 'k'"):
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            db.execute(f"UPDATE runs SET {refused} WHERE run_id = 'backing-off'")
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        db.execute("UPDATE runs SET delayed_by = 'rate', delay_key = 'k' WHERE run_id = 'asleep'")
    db.execute("UPDATE runs SET delayed_by = 'rate', delay_key = 'k' WHERE run_id = 'backing-off'")
    db.close()


def test_a_migration_that_fails_leaves_the_schema_as_it_was() -> None:
    db = _opened()
    db.execute("CREATE TABLE runs (mine TEXT)")
    before = _schema(db)
    with pytest.raises(sqlite3.OperationalError, match="runs already exists"):
        migrate(db)
    assert _schema(db) == before
    assert db.execute("PRAGMA user_version").fetchone()[0] == 0
    assert not db.in_transaction
    db.close()


RACER = """
import asyncio, sys
from bench.idle_poke import fill
from ocean.compose import open_store
from ocean.state.clock import SystemClock
async def main():
    store = await open_store("sqlite:///" + sys.argv[1], SystemClock())
    await store.close()
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""


def test_processes_that_race_to_migrate_a_fresh_file_all_succeed(tmp_path: Path) -> None:
    path = tmp_path / "ocean.db"
    command = [sys.executable, "-c", RACER, str(path)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    errors = [racer.communicate()[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0, 0, 0], errors
    db = _opened(path)
    assert set(table_names(db)) >= TABLES
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    db.close()
