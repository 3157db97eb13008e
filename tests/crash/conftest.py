"""A database that outlives processes, and a way to start processes on it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ocean import SystemClock
from ocean.compose import open_store
from tests.crash.places import Place, history_of
from tests.crash.processes import ForkServer, Start, Victim
from tests.invariants import check_store, check_tables
from tests.postgres.server import blocking, fresh_database, return_database


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The invariants of the state are checked at the end, by a separate connection."""
    if request.param == "postgres":
        yield from _postgres()
        return
    path = tmp_path / "ocean.db"
    yield path
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        check_tables(connection, SystemClock().now())
    finally:
        connection.close()


def _postgres() -> Iterator[str]:
    url = fresh_database(has_test_clock=False)
    yield url

    async def check() -> None:
        store = await open_store(url, SystemClock())
        try:
            await check_store(store, SystemClock().now())
        finally:
            await store.close()

    try:
        blocking(check())
    finally:
        return_database(url)
        history_of(url).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def start(fork_server: ForkServer, db: Place) -> Iterator[Start]:
    """Starts victims; all of them have ended before the database is checked."""
    started: list[Victim] = []

    def start(scenario: str, *args: object) -> Victim:
        started.append(Victim(fork_server, scenario, *args))
        return started[-1]

    yield start
    for victim in started:
        victim.close()


@pytest.fixture
def history(db: Place) -> Path:
    return history_of(db)
