"""Reads that are requested together share a snapshot, and nothing else."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ocean.state.errors import StoreUnusable
from ocean.stores.sqlite.engine.database import Database

pytestmark = pytest.mark.anyio

PATIENCE_S = 20


@pytest.fixture
async def database(tmp_path: Path, anyio_backend: Any) -> AsyncIterator[Database]:
    opened = Database(str(tmp_path / "ocean.db"))
    await opened.open()
    yield opened
    await opened.close()


def count_sessions(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT count(*) FROM ocean_sessions").fetchone()[0]
    return found


def breaks(db: sqlite3.Connection) -> int:
    raise ZeroDivisionError


async def test_reads_of_one_round_share_a_snapshot(database: Database) -> None:
    ran: list[str] = []
    await database.read(lambda db: db.set_trace_callback(ran.append))
    ran.clear()
    assert await asyncio.gather(*(database.read(count_sessions) for _ in range(5))) == [0] * 5
    assert ran.count("BEGIN") == 1


async def test_a_read_that_fails_fails_alone(database: Database) -> None:
    reads = [database.read(unit) for unit in (count_sessions, breaks, count_sessions)]
    first, broken, last = await asyncio.gather(*reads, return_exceptions=True)
    assert (first, last) == (0, 0)
    assert isinstance(broken, ZeroDivisionError)


async def test_a_later_read_sees_what_was_committed_meanwhile(database: Database) -> None:
    assert await database.read(count_sessions) == 0
    await database.write(lambda transaction: transaction.execute("INSERT INTO ocean_sessions VALUES ('s', 1)"))
    assert await database.read(count_sessions) == 1


async def test_a_cancelled_read_does_not_disturb_others(database: Database) -> None:
    entered, let_go = threading.Event(), threading.Event()

    def hold(db: sqlite3.Connection) -> None:
        entered.set()
        let_go.wait(PATIENCE_S)

    impatient = asyncio.ensure_future(database.read(hold))
    await anyio.to_thread.run_sync(entered.wait, PATIENCE_S)
    patient = asyncio.ensure_future(database.read(count_sessions))
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    let_go.set()
    assert await patient == 0


async def test_reads_that_wait_while_the_database_closes_are_finished(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "ocean.db"))
    await database.open()
    reading = asyncio.ensure_future(database.read(count_sessions))
    await anyio.lowlevel.checkpoint()
    await database.close()
    with anyio.fail_after(PATIENCE_S):
        [answer] = await asyncio.gather(reading, return_exceptions=True)
    assert answer == 0 or isinstance(answer, StoreUnusable)
    with pytest.raises(StoreUnusable):
        await database.read(count_sessions)


async def test_a_read_while_a_connection_closes_raises_store_unusable(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "ocean.db"))
    await database.open()
    for connection in (database._reader, database._writer):
        await connection._execute(connection._conn.close)  # type: ignore[no-untyped-call]
    with pytest.raises(StoreUnusable, match="closed"):
        await database.read(count_sessions)
    with pytest.raises(StoreUnusable, match="closed"):
        await database.write(lambda transaction: transaction.last_seq())
    await database.close()
