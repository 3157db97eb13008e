"""Databases of a test's own."""

from collections.abc import Iterator

import pytest

from tests.postgres.server import fresh_database, new_database, return_database


@pytest.fixture
def database() -> Iterator[str]:
    """Time is a row that the store's clock sets."""
    url = fresh_database()
    yield url
    return_database(url)


@pytest.fixture
def real_database() -> Iterator[str]:
    """As it is shipped: time is the server's."""
    url = fresh_database(has_test_clock=False)
    yield url
    return_database(url)


@pytest.fixture
def unused_database() -> Iterator[str]:
    """As it is shipped, and without the dead rows that another test has left: for whoever counts what is touched."""
    url = new_database(has_test_clock=False)
    yield url
    return_database(url)
