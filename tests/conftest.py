"""Fixtures of every test: asyncio, a world in virtual time, and a check of the state afterwards."""

import inspect
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ocean.testing import World, world
from tests.invariants import check
from tests.postgres.server import fresh_database, return_database

Worlds = Callable[..., AbstractAsyncContextManager[World]]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has started the tests in the background; their child processes would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def every_connection_is_closed() -> Iterator[None]:
    """Fail a test that leaves a database open: it leaks a connection, or has found a leak."""
    before = _connection_threads()
    yield
    for thread in _connection_threads() - before:
        thread.join(5)
        assert not thread.is_alive(), f"{thread.name} still has a database open"


def _connection_threads() -> set[threading.Thread]:
    names = ("_connection_worker_thread", "ocean-locks")
    return {thread for thread in threading.enumerate() if any(name in thread.name for name in names)}


ON_BOTH = ("lifecycle", "races", "flows")
"""Folders whose tests run on SQLite and on PostgreSQL, as those of clogs do, except tests that are marked or whose
source contains a word of `SQLITES`: `let_others_go_on` counts rounds of the event loop, which do not drive a server."""
SQLITES = ("sqlite", "let_others_go_on")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.definition.path.parent
    is_on_both = folder.name in ON_BOTH or folder.parent.name == "clogs"
    if is_on_both and inspect.iscoroutinefunction(metafunc.function):
        is_marked = any(metafunc.definition.iter_markers("sqlite"))
        source = inspect.getsource(metafunc.function).lower()
        is_sqlites = is_marked or any(word in source for word in SQLITES)
        if not is_sqlites and "url" not in metafunc.fixturenames:
            metafunc.fixturenames.append("ground")
            metafunc.parametrize("ground", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The store of a world that names no database."""
    lent: list[str] = []

    def lend() -> str:
        lent.append(fresh_database())
        return lent[-1]

    if request.param == "postgres":
        monkeypatch.setattr("ocean.testing.worlds.fresh_url", lend)
    yield request.param
    for url in lent:
        return_database(url)


@pytest.fixture(autouse=True)
def on_its_ground(request: pytest.FixtureRequest) -> None:
    """Set up `ground`: pytest does not set up a fixture that only `pytest_generate_tests` has added."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "ground" in callspec.params:
        request.getfixturevalue("ground")


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database of each kind that Ocean runs on."""
    return "sqlite://:memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'ocean.db'}"


@pytest.fixture
async def w(anyio_backend: Any) -> AsyncIterator[World]:
    """A world without clogs, for tests that use the store; its invariants are checked at the end."""
    async with world() as made:
        yield made
        await check(made)
