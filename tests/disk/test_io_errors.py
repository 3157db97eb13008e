"""A failing disk: the caller gets a clear error, and once the disk works again everything happens once."""

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import apsw
import pytest

from ocean import Clog, Done, Ocean, OceanError, Outcome, RetryPolicy, RunStatus, StoreFailed, StoreUnusable, Tick
from ocean.stores.sqlite.store import SqliteStore
from ocean.testing import ManualClock
from ocean.testing.manual_clock import START
from tests.disk.driver import Before, Driver, coded
from tests.disk.failing_calls import PATIENCE_S, Fault, day, empty_database, ordinary_day
from tests.disk.power import FILE, memory_folder, store_on
from tests.disk.vfs import Disk
from tests.invariants import check_store

pytestmark = pytest.mark.anyio


async def test_whichever_disk_call_fails_the_caller_gets_an_error_and_the_result_is_the_same() -> None:
    """One call of each kind in each deed; `python -m tests.disk.failing_calls` lets every one fail."""
    empty, chance = await empty_database(), random.Random(6)
    wanted, calls = await ordinary_day(empty)
    places: dict[tuple[str, str], list[int]] = {}
    for nth, call in enumerate(calls, 1):
        places.setdefault(call, []).append(nth)
    struck: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for number, nths in enumerate(places.values()):
        fault = Fault(chance.choice(nths), "until_noticed" if number % 2 else "once")
        assert await day(fault, empty) == wanted, f"after call {fault.nth} failed: {fault.failed[:1]}"
        struck.update(fault.failed[:1])
        errors += fault.errors
    assert struck.keys() >= {"open", "read", "write", "sync", "BEGIN IMMEDIATE"}
    assert errors.keys() == {"StoreBusy", "StoreFailed", "StoreUnusable"}


@asynccontextmanager
async def on_a_disk(
    *clogs: Clog, before: Before = lambda sql: None, fails: Callable[[str], None] = lambda call: None
) -> AsyncIterator[tuple[Ocean, Path]]:
    disk, clock = Disk("on a disk", fails), ManualClock()
    with memory_folder() as folder:
        store = store_on(Driver(disk.name, before=before), folder / FILE, clock)
        await store.open()
        ocean = Ocean(store, clogs, clock)
        try:
            await ocean.start()
            yield ocean, folder
        finally:
            await ocean.close()


async def test_a_tick_that_cannot_read_its_rows_spends_no_attempt() -> None:
    """A failure of the disk is not one of the handler: with one attempt only, the run would have failed."""
    is_failing = True

    def fail(sql: str) -> None:
        if is_failing and "FROM ocean_storage_run" in sql:
            raise coded(sqlite3.OperationalError("disk I/O error"), sqlite3.SQLITE_IOERR_READ)

    clog = Clog("c")

    @clog.on_advance
    async def read(tick: Tick) -> Outcome:
        return Done((await tick.read(run=True)).run)

    async with on_a_disk(clog, before=fail) as (ocean, _):
        once = RetryPolicy(max_attempts=1)
        await ocean.create_run(session_id="s", clog_id="c", run_id="r", input={}, retry=once)
        with pytest.raises(StoreFailed):
            await ocean.advance()
        run = await ocean.get_run("r")
        assert run is not None
        assert (run.status, run.attempt) == (RunStatus.PENDING, 0)
        is_failing = False
        await ocean.advance()
        assert await ocean.result("r") is None


async def test_a_commit_that_could_not_be_synced_may_come_back_after_a_crash_and_is_found_by_its_key() -> None:
    """What was written of it is still in the log. So a caller that got an error repeats it with the same key."""
    is_failing = False

    def fail(call: str) -> None:
        if is_failing and call == "sync":
            raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC)

    async def create(ocean: Ocean) -> str:
        made = await ocean.create_run(session_id="s", clog_id="c", input={}, request_key="once")
        return made.run_id

    clog = Clog("c")
    async with on_a_disk(clog, fails=fail) as (ocean, folder):
        is_failing = True
        with pytest.raises(StoreFailed):
            await create(ocean)
        assert (await ocean.count_runs()).count == 0
        crashed = folder / "crashed"
        crashed.mkdir()
        for name in (FILE, f"{FILE}-wal"):
            shutil.copy(folder / name, crashed / name)
        is_failing = False
        async with Ocean.open(f"sqlite:///{crashed / FILE}", clogs=[clog]) as again:
            found = (await again.list_runs()).runs
            assert len(found) == 1
            assert await create(again) == found[0].run_id
            assert (await again.count_runs()).count == 1


async def test_a_task_that_waits_for_another_process_is_woken_if_polling_the_file_failed() -> None:
    """Otherwise it would miss a commit that was already made, and wait until it made one itself."""
    looks, is_watched = 0, False

    def fail(sql: str) -> None:
        nonlocal looks
        if is_watched and sql == "PRAGMA data_version":
            looks += 1
            raise coded(sqlite3.OperationalError("disk I/O error"), sqlite3.SQLITE_IOERR)

    clog = Clog("c")
    async with on_a_disk(clog, before=fail) as (ocean, folder):
        other = store_on(Driver("on a disk"), folder / FILE, ManualClock())
        await other.open()
        await ocean.create_run(session_id="s", clog_id="c", run_id="r")
        is_watched = True
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(ocean.next_change, ocean.commits_seen(), wait_ms=1_000))
                while not looks:
                    await anyio.lowlevel.checkpoint()
                await Ocean(other, [clog], other.clock).signal("r")
        await other.close()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PROTOCOL])
async def test_a_damaged_file_raises_store_failed_for_reads_and_writes(code: int) -> None:
    is_failing = False

    def fail(sql: str) -> None:
        if is_failing and "runs" in sql:
            raise coded(sqlite3.DatabaseError("database disk image is malformed"), code)

    async with on_a_disk(Clog("c"), before=fail) as (ocean, _):
        is_failing = True
        with pytest.raises(StoreFailed, match="cannot be read"):
            await ocean.get_run("r")
        with pytest.raises(StoreFailed, match="cannot be written"):
            await ocean.create_run(session_id="s", clog_id="c", run_id="r")
        is_failing = False
        await ocean.create_run(session_id="s", clog_id="c", run_id="r")


async def test_a_file_that_fails_right_after_it_was_opened_is_refused_and_closed() -> None:
    def fail(sql: str) -> None:
        if sql == "PRAGMA data_version":
            raise coded(sqlite3.OperationalError("disk I/O error"), sqlite3.SQLITE_IOERR)

    with pytest.raises(StoreUnusable, match="cannot open"):
        async with on_a_disk(before=fail):
            pass


async def test_a_database_whose_creation_failed_anywhere_is_created_by_the_next_process() -> None:
    fault = Fault()
    with memory_folder() as folder:
        store = await opened(fault, folder)
        calls = len(fault.calls)
        await store.close()
    for nth in range(1, calls, 29):
        failing = Fault(nth, "until_noticed")
        with memory_folder() as folder:
            store = await opened(failing, folder)
            await check_store(store, START)
            await store.close()
        assert failing.failed


async def opened(fault: Fault, folder: Path) -> SqliteStore:
    """Open an empty file until it has become a database; failures are reported and retried."""
    disk = Disk("making", fault.call)
    while True:
        store = store_on(Driver(disk.name, before=fault.statement), folder / FILE, ManualClock())
        try:
            await store.open()
            return store
        except OceanError as error:
            fault.notice(error)
