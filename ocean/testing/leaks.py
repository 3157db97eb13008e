"""Worlds that look behind themselves: what a test has left running is an error of the test, or of what it tests."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from ocean.clog.clog import Clog
from ocean.kernel.kernel import DEFAULT_LOCK_MS
from ocean.testing.outside import Outside
from ocean.testing.worlds import World, world


class OpenWorld(Protocol):
    """As `world`; the type of the fixture `ocean_world`."""

    def __call__(
        self,
        clogs: Iterable[Clog] = (),
        *,
        url: str | None = None,
        lock_ms: int = DEFAULT_LOCK_MS,
        private_hosts: Collection[str] = (),
        outside: Outside | None = None,
    ) -> AbstractAsyncContextManager[World]: ...


class TidyWorlds:
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
        """A world that ends with an error if a task or a handler goes on, or a request was answered by nobody."""
        before = asyncio.all_tasks()
        self._open += 1
        made = world(clogs, url=url, lock_ms=lock_ms, private_hosts=private_hosts, outside=outside)
        async with made as w:
            try:
                yield w
                self._open -= 1
            except GeneratorExit:
                raise  # nobody has closed it: it was found lying about
            except BaseException:
                self._open -= 1
                raise
            at_work = w.ocean.at_work
        left = [task.get_coro() for task in asyncio.all_tasks() - before if not task.done()]
        found = [f"the task {getattr(each, '__qualname__', each)} is still running" for each in left]
        found += [f"{at_work} handlers are still at work"] if at_work else []
        found += [f"nobody answers {name}" for name in (outside.unanswered if outside else ())]
        assert not found, "the world has ended, but " + "; ".join(sorted(found))

    def check_all_closed(self) -> None:
        assert not self._open, "a world was opened and not closed: use `async with ocean_world(…) as w`"
