"""A store of every kind that Ocean supports. Another back end is added as one entry of `BACK_ENDS`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ocean.compose import open_test_store
from ocean.kernel.store import Store
from ocean.state.records import ClogRecord
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, OTHER_CLOG, TablesOf
from tests.invariants import check_store
from tests.postgres.server import fresh_database, return_database
from tests.postgres.tables import postgres_tables
from tests.stores.dump import Tables, dump, of_sqlite


@dataclass(frozen=True, slots=True)
class BackEnd:
    """How to open a fresh store, and copy all its tables."""

    name: str
    url: Callable[[Path], str]
    tables: Callable[[Store], Awaitable[Tables]]


async def _sqlite_tables(store: Store) -> Tables:
    return await of_sqlite(store).read(dump)


BACK_ENDS = [
    BackEnd("sqlite-memory", lambda _: "sqlite://:memory:", _sqlite_tables),
    BackEnd("sqlite-file", lambda folder: f"sqlite:///{folder / 'ocean.db'}", _sqlite_tables),
    BackEnd("postgres", lambda _: fresh_database(), postgres_tables),
]


@pytest.fixture(params=BACK_ENDS, ids=lambda back_end: back_end.name)
def back_end(request: pytest.FixtureRequest) -> BackEnd:
    found: BackEnd = request.param
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(back_end: BackEnd, clock: ManualClock, tmp_path: Path, anyio_backend: Any) -> AsyncIterator[Store]:
    """An empty store with two clogs registered; its invariants are checked after the test."""
    url = back_end.url(tmp_path)
    opened = await open_test_store(url, clock)
    try:
        await opened.register_clogs([ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", False)])
        yield opened
        await check_store(opened, clock.now())
    finally:
        await opened.close()
        if url.startswith("postgresql:"):
            return_database(url)


@pytest.fixture
def tables(back_end: BackEnd, store: Store) -> TablesOf:
    """Return a function that reads every row of every table: equal before and after means nothing was written."""
    return lambda: back_end.tables(store)
