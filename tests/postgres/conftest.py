"""Databases for single tests."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from ocean.compose import open_test_store
from ocean.kernel.store import Store
from ocean.state.records import ClogRecord
from ocean.testing import ManualClock
from tests.conformance.kit import CLOG, OTHER_CLOG
from tests.invariants import check_store
from tests.postgres.server import fresh_database, new_database, return_database


@pytest.fixture
def database() -> Iterator[str]:
    """A database whose time is a row that the store's clock sets."""
    url = fresh_database()
    yield url
    return_database(url)


@pytest.fixture
def real_database() -> Iterator[str]:
    """A database as it is released: its time is the server's."""
    url = fresh_database(has_test_clock=False)
    yield url
    return_database(url)


@pytest.fixture
def unused_database() -> Iterator[str]:
    """A database as it is released, without dead rows of other tests: for tests that count touched rows."""
    url = new_database(has_test_clock=False)
    yield url
    return_database(url)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(database: str, clock: ManualClock, anyio_backend: Any) -> AsyncIterator[Store]:
    """A store with two clogs, for tests that arrange concurrent transactions; its invariants are checked at the end."""
    opened = await open_test_store(database, clock)
    await opened.register_clogs([ClogRecord(CLOG, "1", False), ClogRecord(OTHER_CLOG, "1", False)])
    yield opened
    await check_store(opened, clock.now())
    await opened.close()
