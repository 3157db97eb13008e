"""How the store's verbs are run: each is one unit, on the writer or on a snapshot of the reader."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

from ocean.kernel.observing import Histogram
from ocean.stores.sqlite.transaction import Transaction
from ocean.stores.sqlite.unit import Unit

T = TypeVar("T")


class Transactions(Protocol):
    """What runs units whole. `Database` does it on threads; a simulation does it on its event loop."""

    @property
    def batch_sizes(self) -> Histogram: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def write(self, unit: Callable[[Transaction], T]) -> T: ...

    def write_blocking(self, unit: Callable[[Transaction], T]) -> T: ...

    async def read(self, unit: Callable[[sqlite3.Connection], T]) -> T: ...

    def commits_seen(self) -> int: ...

    async def next_commit(self, seen: int, look_ms: int = 100) -> int: ...


class Units(ABC):
    @abstractmethod
    async def _write(self, act: Callable[[Unit], T]) -> T: ...

    @abstractmethod
    async def _read(self, act: Callable[[Unit], T]) -> T: ...
