"""A database file that outlives processes, and a way to start some on it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ocean import SystemClock
from tests.crash.processes import Nursery, Start, Victim
from tests.invariants import check_tables


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Path]:
    """The invariants on state are checked at the end, by a connection of no process's."""
    path = tmp_path / "ocean.db"
    yield path
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        check_tables(connection, SystemClock().now())
    finally:
        connection.close()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def start(nursery: Nursery, db: Path) -> Iterator[Start]:
    """Starts victims; all of them have ended before the database is checked."""
    started: list[Victim] = []

    def start(scenario: str, *args: object) -> Victim:
        started.append(Victim(nursery, scenario, *args))
        return started[-1]

    yield start
    for victim in started:
        victim.close()


@pytest.fixture
def history(db: Path) -> Path:
    """What handlers really did, in a file that no transaction rolls back."""
    return Path(f"{db}.history")
