"""What a tick does outside the database: HTTP requests and the functions of steps. Tests can replace it."""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from ocean.kernel.invoke import invoke
from ocean.tools.fetch import FetchRequest, FetchResponse, fetch


class Reach(Protocol):
    """What ticks reach outside."""

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Return the response, whatever its status, or raise `FetchRefused`."""

    async def take_step(self, name: str, key: str, fn: Callable[[str], Any]) -> Any:
        """Return the result of `fn(key)`; `name` is the clog's id and the step's name."""


class RealReach:
    """The real one. `private_hosts` are "host:port" that may be fetched although they are not public."""

    def __init__(self, private_hosts: Collection[str] = ()) -> None:
        self._private_hosts = tuple(private_hosts)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        return await fetch(request, private_hosts=self._private_hosts)

    async def take_step(self, name: str, key: str, fn: Callable[[str], Any]) -> Any:
        return await invoke(fn, key)
