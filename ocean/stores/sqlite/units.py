"""How the store's verbs are run: each is one unit, on the writer or on a snapshot of the reader."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ocean.stores.sqlite.unit import Unit

T = TypeVar("T")


class Units(ABC):
    @abstractmethod
    async def _write(self, act: Callable[[Unit], T]) -> T: ...

    @abstractmethod
    async def _read(self, act: Callable[[Unit], T]) -> T: ...
