"""What every test has: asyncio, a world in virtual time, and the state checked after it."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ocean.testing import World, world
from tests.invariants import check

Worlds = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def every_connection_is_closed() -> Iterator[None]:
    """A test that leaves a database open has found a leak, or is one."""
    before = _connection_threads()
    yield
    for thread in _connection_threads() - before:
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} still has a database open"


def _connection_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name}


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database of each kind that Ocean runs on."""
    return "sqlite://:memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'ocean.db'}"


@pytest.fixture
async def w(anyio_backend: Any) -> AsyncIterator[World]:
    """A world without clogs, for tests that speak to the store; its invariants are checked at the end."""
    async with world() as made:
        yield made
        await check(made)
