"""How the store's verbs are run: each is one unit, on the writer or on a snapshot of the reader."""

import sqlite3
from collections.abc import Callable
from typing import Protocol, TypeVar

from ocean.kernel.metrics import Histogram
from ocean.state.clock import Clock
from ocean.state.records import Claim
from ocean.stores.sqlite.engine.group_commit import Ordered
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit

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

    def order(self, order: Ordered) -> None:
        """The next transaction runs it as its last unit, if it has made something due."""

    def take_back(self, order: Ordered) -> bool:
        """False if it has been run, or is being run."""

    @property
    def is_about_to_write(self) -> bool:
        """Units wait for their transaction."""

    def commits_seen(self) -> int: ...

    async def next_commit(self, seen: int, look_ms: int = 100) -> int: ...


class Order:
    """A claim that the next transaction makes which makes something due."""

    def __init__(
        self,
        transactions: Transactions,
        claim: Callable[[Transaction], list[Claim]],
        claimed: Callable[[list[Claim]], None],
    ) -> None:
        self._transactions = transactions
        self._order = Ordered(unit=claim, claimed=claimed)
        transactions.order(self._order)

    async def withdraw(self) -> None:
        if not self._transactions.take_back(self._order):
            await self._order.waiter.told()


class Units:
    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def _unit(self, act: Callable[[Unit], T]) -> Callable[[Transaction], T]:
        def run(transaction: Transaction) -> T:
            u = Unit(transaction, self._clock.now())
            answer = act(u)
            u.flush()
            return answer

        return run

    async def _write(self, act: Callable[[Unit], T]) -> T:
        return await self._transactions.write(self._unit(act))

    async def _read(self, act: Callable[[Unit], T]) -> T:
        unit = self._unit(act)
        return await self._transactions.read(lambda db: unit(Transaction(db)))
