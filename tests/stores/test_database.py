"""The SQLite database with several threads and processes."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import aiosqlite
import anyio
import pytest

from ocean.compose import open_store
from ocean.kernel.store import Store
from ocean.kernel.store.claims import Renewal
from ocean.state.clock import SystemClock
from ocean.state.errors import StoreBusy, StoreFailed, StoreUnusable
from ocean.state.records import ClogRecord
from ocean.stores.sqlite.engine import connection as connection_module
from ocean.stores.sqlite.engine.database import QUIET_ROUNDS, Database
from ocean.stores.sqlite.engine.transaction import Transaction
from tests.conformance.kit import CLOG, a_run, claimed_run
from tests.stores.dump import of_sqlite

pytestmark = pytest.mark.anyio

PATIENCE_S = 20
"""A test that hangs fails after this time; no other test waits for it."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ocean.db"


@pytest.fixture
async def store(path: Path, anyio_backend: Any) -> AsyncIterator[Store]:
    opened = await open_store(f"sqlite:///{path}", SystemClock())
    await opened.register_clogs([ClogRecord(CLOG, "1", False)])
    yield opened
    await opened.close()


def _child(code: str, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _insert_session(name: str) -> str:
    return f"INSERT INTO ocean_sessions VALUES ('{name}', 1)"


async def _sessions(store: Store) -> list[str]:
    def unit(db: sqlite3.Connection) -> list[str]:
        return [row[0] for row in db.execute("SELECT session_id FROM ocean_sessions ORDER BY session_id")]

    return await of_sqlite(store).read(unit)


async def test_every_connection_has_the_settings_that_durability_needs(store: Store) -> None:
    def settings(db: sqlite3.Connection) -> dict[str, Any]:
        return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}

    wanted = {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 5_000,
        "journal_size_limit": 64 * 1024 * 1024,
        "trusted_schema": 0,
        "wal_autocheckpoint": 4_000,
    }
    assert await of_sqlite(store).on_writer(settings) == wanted
    assert await of_sqlite(store).read(settings) == wanted


async def test_aiosqlite_has_the_private_names_that_the_engine_uses(path: Path) -> None:
    connection = aiosqlite.Connection(lambda: sqlite3.connect(path), iter_chunk_size=64)
    assert isinstance(connection._thread, threading.Thread)
    connection._thread.daemon = True
    await connection
    assert isinstance(connection._tx, SimpleQueue)
    assert isinstance(connection._conn, sqlite3.Connection)
    ran: SimpleQueue[int | None] = SimpleQueue()
    connection._tx.put_nowait((None, lambda: ran.put(threading.get_ident())))
    assert await connection._execute(threading.get_ident) == connection._thread.ident  # type: ignore[no-untyped-call]
    assert ran.get_nowait() == connection._thread.ident
    await connection.close()
    connection._thread.join(PATIENCE_S)
    assert not connection._thread.is_alive()


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_a_cancelled_writer_leaves_its_unit_whole_and_no_transaction_open(store: Store, how: str) -> None:
    entered, let_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def unit(db: Transaction) -> str:
        db.execute(_insert_session("one"))
        loop.call_soon_threadsafe(entered.set)
        let_go.wait()
        db.execute(_insert_session("two"))
        return "known"

    seen: list[str] = []
    scope = anyio.CancelScope()

    async def writer() -> None:
        with scope:
            seen.append(await of_sqlite(store).write(unit))
            await anyio.lowlevel.checkpoint()
            seen.append("not cancelled")

    task = asyncio.create_task(writer())
    await entered.wait()
    if how == "scope":
        scope.cancel()
    else:
        task.cancel()
    let_go.set()
    await asyncio.wait([task])
    assert seen == (["known"] if how == "scope" else [])
    assert await of_sqlite(store).on_writer(lambda db: db.in_transaction) is False
    assert await _sessions(store) == ["one", "two"]


async def test_a_unit_has_the_write_lock_before_it_reads(store: Store, path: Path) -> None:
    def unit(db: Transaction) -> str:
        rival = sqlite3.connect(path, isolation_level=None, timeout=0)
        try:
            rival.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as refusal:
            return str(refusal)
        finally:
            rival.close()
        return "the rival came first"

    assert await of_sqlite(store).write(unit) == "database is locked"


async def test_a_unit_that_raises_leaves_no_transaction_open(store: Store) -> None:
    def unit(db: Transaction) -> None:
        db.execute(_insert_session("one"))
        raise KeyError("mine")

    with pytest.raises(KeyError):
        await of_sqlite(store).write(unit)
    assert await of_sqlite(store).on_writer(lambda db: db.in_transaction) is False
    assert await _sessions(store) == []


async def test_a_cancelled_reader_leaves_no_snapshot_open(store: Store) -> None:
    entered, let_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def unit(db: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(entered.set)
        let_go.wait()

    task = asyncio.create_task(of_sqlite(store).read(unit))
    await entered.wait()
    task.cancel()
    let_go.set()
    await asyncio.wait([task])
    in_transaction = await of_sqlite(store)._reader._execute(  # type: ignore[no-untyped-call]
        lambda: of_sqlite(store)._reader._conn.in_transaction
    )
    assert in_transaction is False


async def test_a_reader_sees_one_snapshot_while_the_writer_commits(store: Store) -> None:
    entered, let_go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def count(db: sqlite3.Connection) -> int:
        found: int = db.execute("SELECT count(*) FROM ocean_sessions").fetchone()[0]
        return found

    def unit(db: sqlite3.Connection) -> list[int]:
        first = count(db)
        loop.call_soon_threadsafe(entered.set)
        let_go.wait()
        return [first, count(db)]

    reading = asyncio.create_task(of_sqlite(store).read(unit))
    await entered.wait()
    await store.create_run(a_run(), None)
    let_go.set()
    assert await reading == [0, 0]
    assert await of_sqlite(store).read(count) == 1


async def test_locks_are_renewed_from_a_thread_while_the_event_loop_is_blocked(store: Store) -> None:
    held = await claimed_run(store)
    renewals: list[Renewal] = []
    beat = threading.Thread(target=lambda: renewals.append(store.renew_locks([held.lock])))
    beat.start()
    beat.join(PATIENCE_S)
    assert renewals == [Renewal(set(), set())]


async def test_a_process_that_has_not_closed_its_store_can_exit(path: Path) -> None:
    code = """
import asyncio, sys
from ocean.compose import open_store
from ocean.state.clock import SystemClock
from ocean.state.records import ClogRecord
async def main():
    store = await open_store("sqlite:///" + sys.argv[1], SystemClock())
    await store.register_clogs([ClogRecord("counter", "1", False)])
    return store
kept = asyncio.run(main())
print("bye")
"""
    with anyio.fail_after(PATIENCE_S):
        done = await anyio.run_process([sys.executable, "-c", code, str(path)], check=False)
    assert (done.returncode, done.stdout) == (0, b"bye\n")


async def test_the_commit_of_another_process_is_noticed(store: Store, path: Path) -> None:
    code = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
for number, _ in enumerate(sys.stdin):
    db.execute("INSERT INTO ocean_sessions VALUES (?, 1)", (f"foreign-{number}",))
    print(number, flush=True)
"""
    seen = store.commits_seen()
    noticed = asyncio.create_task(store.next_commit(seen))
    with anyio.fail_after(PATIENCE_S), _child(code, path) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        while not noticed.done():
            child.stdin.write("go\n")
            child.stdin.flush()
            assert await asyncio.to_thread(child.stdout.readline)
        child.stdin.close()
        assert child.wait() == 0
        child.stdout.close()
    assert await noticed > seen
    assert (await _sessions(store))[0] == "foreign-0"


async def test_a_commit_made_before_any_task_waited_is_noticed(store: Store, path: Path) -> None:
    seen = store.commits_seen()
    other = await open_store(f"sqlite:///{path}", SystemClock())
    await other.create_run(a_run(), None)
    await other.close()
    with anyio.fail_after(PATIENCE_S):
        assert await store.next_commit(seen) > seen


async def test_a_write_lock_of_another_process_raises_store_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "BUSY_TIMEOUT_MS", 1)
    store = await open_store(f"sqlite:///{path}", SystemClock())
    await store.register_clogs([ClogRecord(CLOG, "1", False)])
    code = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print("free", flush=True)
"""
    with _child(code, path) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "held\n"
        with pytest.raises(StoreBusy):
            await store.create_run(a_run(), None)
        assert await store.get_run("r") is None
        child.stdin.write("\n")
        child.stdin.flush()
        assert await asyncio.to_thread(child.stdout.readline) == "free\n"
    assert await of_sqlite(store).on_writer(lambda db: db.in_transaction) is False
    assert (await store.create_run(a_run(), None)).run_id == "r"
    await store.close()


async def test_a_full_disk_raises_store_failed_and_nothing_is_written(store: Store) -> None:
    database = of_sqlite(store)
    await database.on_writer(lambda db: db.execute("PRAGMA max_page_count = 1").fetchall())
    with pytest.raises(StoreFailed, match="cannot be written: database or disk is full"):
        await store.create_run(a_run("r", input="x" * 100_000), None)
    assert await store.get_run("r") is None
    await database.on_writer(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchall())
    await store.create_run(a_run("r", input="x" * 100_000), None)
    assert await store.get_run("r") is not None


async def test_a_closed_store_raises_store_unusable(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}", SystemClock())
    await store.close()
    await store.close()
    with pytest.raises(StoreUnusable, match="closed"):
        await store.get_run("r")
    with pytest.raises(StoreUnusable, match="closed"):
        await store.create_run(a_run(), None)
    with pytest.raises(StoreUnusable, match="closed"):
        store.renew_locks([])


async def test_what_is_queued_when_the_store_closes_is_still_committed(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}", SystemClock())
    await store.register_clogs([ClogRecord(CLOG, "1", False)])
    making = [asyncio.create_task(store.create_run(a_run(f"r{number}"), None)) for number in range(5)]
    await anyio.lowlevel.checkpoint()
    await store.close()
    assert [(await made).run_id for made in making] == [f"r{number}" for number in range(5)]
    again = Database(str(path))
    await again.open()
    assert await again.read(lambda db: db.execute("SELECT count(*) FROM runs").fetchone()[0]) == 5
    await again.close()


async def test_units_queued_meanwhile_share_a_transaction_with_those_of_callers_just_woken(store: Store) -> None:
    database = of_sqlite(store)
    entered, let_go = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        entered.set()
        let_go.wait()

    async def twice() -> None:
        await database.write(hold)
        await database.write(lambda _: None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(twice)
        await anyio.to_thread.run_sync(entered.wait)
        groups, units = database.group_sizes
        tasks.start_soon(database.write, lambda _: None)
        for _ in range(QUIET_ROUNDS + 2):
            await anyio.lowlevel.checkpoint()
        let_go.set()
    assert database.group_sizes == (groups + 2, units + 3)


async def test_a_blocking_write_that_runs_gathered_units_leaves_no_caller_waiting(store: Store) -> None:
    database = of_sqlite(store)
    first = asyncio.create_task(database.write(lambda _: None))
    await anyio.lowlevel.checkpoint()
    database.write_blocking(lambda _: None)
    await first
    for _ in range(10 * QUIET_ROUNDS):
        await anyio.lowlevel.checkpoint()
    # A scope's time limit would not end it: a writer waits for its result.
    later = asyncio.create_task(database.write(lambda _: None))
    await asyncio.wait([later], timeout=PATIENCE_S)
    assert later.done()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ocean.db",
        "sqlite:ocean.db",
        "sqlite://",
        "sqlite:///",
        "sqlite://ocean.db",
        "sqlite:////no/such/folder/ocean.db",
        "sqlite:////",
    ],
)
async def test_a_url_that_names_no_database_is_refused_with_a_message(url: str) -> None:
    assert url.removeprefix("sqlite:///") in await _refusal(url)


async def _refusal(url: str) -> str:
    with pytest.raises(StoreUnusable) as refused:
        await open_store(url, SystemClock())
    return str(refused.value)


async def test_a_file_that_is_not_a_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = anyio.Path(tmp_path / "diary.txt")
    await path.write_text("dear diary, " * 100)
    assert "not a database" in await _refusal(f"sqlite:///{path}")
    assert await path.read_text() == "dear diary, " * 100


async def test_a_relative_url_is_a_file_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_store("sqlite:///here.db", SystemClock())
    await store.close()
    assert (tmp_path / "here.db").exists()
