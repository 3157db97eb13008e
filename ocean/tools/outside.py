"""The two ways out of a tick: an HTTP request, and a step's function. A test may stand in for what is out there."""

from collections.abc import Callable, Collection
from typing import Any, Protocol

from ocean.kernel.invoke import invoke
from ocean.tools.fetch import FetchRequest, FetchResponse, fetch


class Reach(Protocol):
    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """The answer, whatever its status, or `FetchRefused`."""

    async def take_step(self, name: str, key: str, fn: Callable[[str], Any]) -> Any:
        """What `fn(key)` answers; `name` is the clog's id and the step's name."""


class RealReach:
    """`private_hosts` are "host:port" of what may be fetched although it is not public."""

    def __init__(self, private_hosts: Collection[str] = ()) -> None:
        self._private_hosts = tuple(private_hosts)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        return await fetch(request, private_hosts=self._private_hosts)

    async def take_step(self, name: str, key: str, fn: Callable[[str], Any]) -> Any:
        return await invoke(fn, key)
