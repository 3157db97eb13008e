"""Worlds that check at their end that nothing is left running: a leak is a bug of the test or of what it tests."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from ocean.clog.clog import Clog
from ocean.kernel.kernel import DEFAULT_LOCK_MS
from ocean.testing.outside import Outside
from ocean.testing.worlds import World, world


class OpenWorld(Protocol):
    """The type of the fixture `ocean_world`. Arguments are those of `world`."""

    def __call__(
        self,
        clogs: Iterable[Clog] = (),
        *,
        url: str | None = None,
        lock_ms: int = DEFAULT_LOCK_MS,
        private_hosts: Collection[str] = (),
        outside: Outside | None = None,
    ) -> AbstractAsyncContextManager[World]: ...


class CheckedWorlds:
    """The worlds of one test."""

    def __init__(self) -> None:
        self._open = 0

    @asynccontextmanager
    async def open(
        self,
        clogs: Iterable[Clog] = (),
        *,
        url: str | None = None,
        lock_ms: int = DEFAULT_LOCK_MS,
        private_hosts: Collection[str] = (),
        outside: Outside | None = None,
    ) -> AsyncIterator[World]:
        """Open a world that fails at its end if a task or a handler still runs, or a request had no defined answer."""
        before = asyncio.all_tasks()
        self._open += 1
        made = world(clogs, url=url, lock_ms=lock_ms, private_hosts=private_hosts, outside=outside)
        async with made as w:
            try:
                yield w
                self._open -= 1
            except GeneratorExit:
                raise  # the world was never closed, and is garbage-collected now
            except BaseException:
                self._open -= 1
                raise
            at_work = w.ocean.at_work
        left = [task.get_coro() for task in asyncio.all_tasks() - before if not task.done()]
        found = [f"the task {getattr(each, '__qualname__', each)} is still running" for each in left]
        found += [f"{at_work} handlers are still at work"] if at_work else []
        found += [f"no answer is defined for {name}" for name in (outside.unanswered if outside else ())]
        assert not found, "the world has ended, but " + "; ".join(sorted(found))

    def check_all_closed(self) -> None:
        """Fail if a world was not closed."""
        assert not self._open, "a world was opened and not closed: use `async with ocean_world(…) as w`"
