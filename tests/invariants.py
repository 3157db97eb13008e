"""The invariants on state, recomputed from the tables of a world after a test."""

import sqlite3
from typing import Any

from ocean.kernel.store import Store
from ocean.state.counters import Counter, CounterKind
from ocean.state.eligibility import kernel_end
from ocean.state.records import Delay, Run, RunStatus
from ocean.state.transitions import due_at, is_last_call, wants_slots
from ocean.stores.shared.rows import run_from
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import World
from tests.postgres.tables import copy

# Claims write no event: `active` appears only if something happens during a tick, and may be skipped.
ALLOWED = {
    "idle": {"idle", "pending", "waiting", "failed"},
    "waiting": {"waiting", "pending", "active", "idle", "done", "failed"},
    "pending": {"pending", "active", "idle", "waiting", "done", "failed"},
    "active": {"active", "pending", "idle", "waiting", "done", "failed"},
    "done": {"done"},
    "failed": {"failed"},
}


async def check(world: World) -> None:
    await check_store(world.store, world.clock.now())


async def check_store(store: Store, now: int) -> None:
    if isinstance(store, SqliteStore):
        await store.database.read(lambda db: check_tables(db, now))
        return
    db = await copy(store)
    try:
        check_tables(db, now)
    finally:
        db.close()


def check_tables(db: sqlite3.Connection, now: int) -> None:
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    for row in db.execute("SELECT * FROM runs").fetchall():
        check_run(db, row, now)
    _check_events(db)
    _check_ticks(db)
    _check_leases(db)
    _check_counters(db)
    _check_keys(db, now)


def check_run(db: sqlite3.Connection, row: sqlite3.Row, now: int) -> None:
    run = run_from(row)
    one = {"run_id": run.run_id}
    assert row["due_at"] == due_at(run), f"due_at is not its function: {run}"
    assert bool(row["last_call"]) == is_last_call(run)
    pending = _value(db, "SELECT count(*) FROM ocean_inbox WHERE run_id = :run_id AND consumed_tick IS NULL", one)
    assert run.pending_count == pending, f"pending_count of {run.run_id}: {run.pending_count}, inbox has {pending}"
    timers = _value(
        db,
        "SELECT count(*) FROM ocean_inbox WHERE run_id = :run_id AND consumed_tick IS NULL AND timer IS NOT NULL",
        one,
    )
    if run.is_ended:
        assert timers == 0, "an ended run has timers"
    if run.status in (RunStatus.IDLE, RunStatus.WAITING):
        first = _value(
            db, "SELECT min(available_at) FROM ocean_inbox WHERE run_id = :run_id AND consumed_tick IS NULL", one
        )
        assert first is None or (run.wake_at is not None and run.wake_at <= first), f"lost wake-up: {run}"
    if run.status is RunStatus.PENDING and run.wake_at is not None:
        assert run.attempt or run.delayed_by or run.ending, (
            f"lost wake-up: pending, and asleep without a failure: {run}"
        )
    if run.stop_by is not None:
        assert (run.status, bool(run.ending)) == (RunStatus.ACTIVE, True), (
            f"stop_by without a call that is to stop: {run}"
        )
        assert row["due_at"] <= run.stop_by, f"lost wake-up: the last tick is due later than stop_by: {run}"
    if run.delayed_by is not None:
        assert (run.lock_epoch, run.tick_open) == (run.life, False), f"a run that was claimed is delayed: {run}"
    debounced = _value(db, "SELECT count(*) FROM ocean_dedupe WHERE run_id = :run_id AND debounced = 1", one)
    if run.delayed_by is Delay.DEBOUNCE and kernel_end(run, now) is None:
        assert debounced == 1, f"a debounced run without its key: {run}"
    consumed = db.execute(
        "SELECT number, available_at, consumed_tick FROM ocean_inbox WHERE run_id = :run_id"
        " AND consumed_tick IS NOT NULL",
        one,
    ).fetchall()
    for entry in consumed:
        assert entry["consumed_tick"] <= run.tick
    log_end = _value(db, "SELECT max(run_seq) FROM events WHERE run_id = :run_id", one)
    assert log_end in (None, run.event_count)


def _check_events(db: sqlite3.Connection) -> None:
    last: dict[str, int] = {}
    status: dict[str, str] = {}
    incomplete: set[str] = set()
    floor = _value(db, "SELECT seq FROM ocean_log_floor", {})
    for event in db.execute("SELECT * FROM events WHERE run_id IS NOT NULL ORDER BY seq").fetchall():
        run_id, number = event["run_id"], event["run_seq"]
        if run_id in last or floor == 0:
            assert number == last.get(run_id, 0) + 1, f"the log of {run_id} is not dense at {number}"
        last[run_id] = number
        if event["type"] == "run.created":
            status.pop(run_id, None)
        if event["type"] == "run.end_incomplete":
            incomplete.add(run_id)
        after = _status_after(db, event)
        if after is not None:
            before = status.get(run_id)
            is_end_retried = event["type"] == "run.ending" and run_id in incomplete
            assert before is None or after in ALLOWED[before] or is_end_retried, (
                f"transitions: {run_id}: {before} → {after} at {event['seq']}"
            )
            status[run_id] = after


def _status_after(db: sqlite3.Connection, event: sqlite3.Row) -> str | None:
    if event["type"] in ("run.done", "run.failed"):
        return str(event["type"].removeprefix("run."))
    if event["type"].split(".")[0] not in ("run", "tick", "call"):
        return None
    status: str | None = db.execute("SELECT json_extract(?, '$.status')", (event["payload"],)).fetchone()[0]
    return status


def _check_ticks(db: sqlite3.Connection) -> None:
    for tick in db.execute("SELECT * FROM ocean_ticks WHERE committed_at IS NOT NULL").fetchall():
        committed = _value(
            db,
            "SELECT count(*) FROM events WHERE run_id = :run_id AND tick = :tick AND type = 'tick.committed'",
            {"run_id": tick["run_id"], "tick": tick["tick"]},
        )
        assert committed <= 1, f"tick {tick['tick']} of {tick['run_id']} committed {committed} times"


def _check_leases(db: sqlite3.Connection) -> None:
    unlike = db.execute(
        "SELECT r.run_id, r.status, r.leased, l.answer FROM runs r"
        " LEFT JOIN ocean_leases l ON l.run_id = r.run_id AND l.epoch = r.lock_epoch"
        " WHERE (r.leased = 1 OR (r.status = 'active' AND l.run_id IS NOT NULL))"
        " AND NOT (r.leased = 1 AND r.status = 'active' AND l.run_id IS NOT NULL AND l.answer IS NULL)"
    ).fetchall()
    assert unlike == [], f"leased does not match the lease: {[tuple(row) for row in unlike]}"
    if _value(db, "SELECT seq FROM ocean_log_floor", {}):
        return
    for lease in db.execute("SELECT * FROM ocean_leases").fetchall():
        # Only an outcome of this call counts, not one of another worker; a lost lease has none.
        outcomes = _value(
            db,
            "SELECT count(*) FROM events WHERE run_id = :run_id AND json_extract(payload, '$.epoch') = :epoch"
            " AND type IN ('tick.committed', 'run.retrying', 'tick.failed')",
            {"run_id": lease["run_id"], "epoch": lease["epoch"]},
        )
        assert outcomes == (lease["answer"] is not None), f"{outcomes} outcomes logged for a lease: {tuple(lease)}"


def _check_counters(db: sqlite3.Connection) -> None:
    for row in db.execute("SELECT * FROM ocean_counters").fetchall():
        counter = Counter(CounterKind(row["kind"]), row["used"], row["at"], row["per_ms"], row["rate"])
        assert row["expires_at"] == counter.expires_at, f"expires_at is not its function: {counter}"
        assert row["expires_at"] is None or row["expires_at"] > row["at"]


def _check_keys(db: sqlite3.Connection, now: int) -> None:
    """Check that slots are counted correctly, held only by runs that may hold them, and that a free one wakes a run."""
    rows = db.execute("SELECT * FROM ocean_run_keys").fetchall()
    runs = {row["run_id"]: run_from(row) for row in db.execute("SELECT * FROM runs WHERE key_count > 0").fetchall()}
    in_use: dict[str, int] = {}
    keys_of: dict[str, list[str]] = {}
    for row in rows:
        run = runs[row["run_id"]]
        keys_of.setdefault(run.run_id, []).append(row["key"])
        in_use[row["key"]] = in_use.get(row["key"], 0) + row["is_held"]
        was_claimed = run.lock_epoch > run.life
        may_hold = run.status is RunStatus.ACTIVE or (row["hold"] == "run" and was_claimed and not run.is_ended)
        assert row["is_held"] <= may_hold, f"key slots: {run.run_id} holds {row['key']}: {run}"
        assert row["is_held"] or run.status is not RunStatus.ACTIVE, (
            f"key slots: at work without one of {row['key']}: {run}"
        )
    for run in runs.values():
        assert len(keys_of.get(run.run_id, ())) == run.key_count, f"key_count of {run}"
        if run.parked_on is not None:
            assert run.parked_on in keys_of[run.run_id], f"parked on a key that is not its own: {run}"
            assert wants_slots(run, now), f"parked, and yet nothing to do: {run}"
    limits = _check_key_rows(db, in_use)
    for key, used in in_use.items():
        if used < limits.get(key, 1):
            _check_wake_up(key, [run for run in runs.values() if key in keys_of[run.run_id]], now)


def _check_key_rows(db: sqlite3.Connection, in_use: dict[str, int]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for row in db.execute("SELECT * FROM ocean_keys").fetchall():
        limits[row["key"]] = row["slots"]
        assert row["in_use"] == in_use.get(row["key"], 0), f"{row['key']} counts {row['in_use']} slots: {in_use}"
    for key, used in in_use.items():
        # Lowering a limit interrupts no run: more runs than the limit are active only if it was higher before.
        if used > limits.get(key, 1):
            sql = (
                "SELECT max(max(json_extract(payload, '$.before'), json_extract(payload, '$.limit'))) FROM events"
                " WHERE type = 'key.limit_set' AND json_extract(payload, '$.key') = :key"
            )
            assert used <= (_value(db, sql, {"key": key}) or 1), f"key limit: {used} runs hold {key!r}"
    return limits


def _check_wake_up(key: str, runs: list[Run], now: int) -> None:
    """Check that a free slot can be claimed by a run of each clog and queue that wait for it, last ticks first.

    A paused clog's runs are claimed for their last tick only, so a run that is not ending must not be ahead of them.
    """
    due = [run for run in runs if run.parked_on is None and wants_slots(run, now)]
    for run in runs:
        if run.parked_on == key:
            line = (run.clog_id, run.queue)
            mates = [other for other in due if (other.clog_id, other.queue) == line]
            ahead = [other for other in mates if other.ending or not run.ending]
            assert ahead, f"lost wake-up: {key!r} has a free slot, and no run of {line} is woken: {run}"


def _value(db: sqlite3.Connection, sql: str, values: dict[str, Any]) -> Any:
    return db.execute(sql, values).fetchone()[0]
