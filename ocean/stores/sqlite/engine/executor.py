"""How the store's verbs are run: each is one unit, on the writer or on a snapshot of the reader.

With a request key a verb is run once: key, body hash and result are stored in the transaction that has the effect.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter

from ocean.kernel.metrics import Histogram
from ocean.kernel.store.runs import Request
from ocean.state.clock import Clock
from ocean.state.records import Claim
from ocean.stores.shared.row_rules import kept_answer
from ocean.stores.sqlite.engine.group_commit import QueuedClaim
from ocean.stores.sqlite.engine.transaction import Transaction
from ocean.stores.sqlite.engine.unit_of_work import Unit

T = TypeVar("T")


class Transactions(Protocol):
    """Runs units whole. `Database` does it on threads; the simulation does it on its event loop."""

    @property
    def batch_sizes(self) -> Histogram: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def write(self, unit: Callable[[Transaction], T]) -> T: ...

    def write_blocking(self, unit: Callable[[Transaction], T]) -> T: ...

    async def read(self, unit: Callable[[sqlite3.Connection], T]) -> T: ...

    def add_claim(self, claim: QueuedClaim) -> None:
        """Run the claim as the last unit of the next transaction that makes a run due."""

    def remove_claim(self, claim: QueuedClaim) -> bool:
        """Remove a claim that is still queued; False if it has been run or is being run."""

    @property
    def is_about_to_write(self) -> bool:
        """Whether units are queued for a transaction."""

    def commits_seen(self) -> int: ...

    async def next_commit(self, seen: int, look_ms: int = 100) -> int: ...


class SqliteClaimOrder:
    """The kernel's `ClaimOrder`: a claim that is part of the next transaction that makes a run due."""

    def __init__(
        self,
        transactions: Transactions,
        claim: Callable[[Transaction], list[Claim]],
        claimed: Callable[[list[Claim]], None],
    ) -> None:
        self._transactions = transactions
        self._claim = QueuedClaim(unit=claim, claimed=claimed)
        transactions.add_claim(self._claim)

    async def withdraw(self) -> None:
        if not self._transactions.remove_claim(self._claim):
            await self._claim.waiter.wait()


class UnitExecutor:
    """What the groups of verbs are built on: `_write` and `_read` run a function of a `Unit`."""

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


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def once(u: Unit, request: Request | None, answer_type: type[T], act: Callable[[], T]) -> T:
    """Call `act` and store its result, or return the stored result of the same request."""
    if request is None:
        return act()
    stored = stored_answer(u, request)
    if stored is not None:
        return _adapter(answer_type).validate_json(stored)
    answer = act()
    keep_answer(u, request, _adapter(answer_type).dump_json(answer).decode())
    return answer


def _adapter(answer_type: type[T]) -> TypeAdapter[T]:
    """Return a cached adapter: creating one costs more than the whole transaction."""
    if answer_type not in _adapters:
        _adapters[answer_type] = TypeAdapter(answer_type)
    return _adapters[answer_type]


def stored_answer(u: Unit, request: Request) -> str | None:
    return kept_answer(u.one("get_request", request_key=request.key), request)


def keep_answer(u: Unit, request: Request, answer: str) -> None:
    u.later("insert_request", request.key, request_key=request.key, hash=request.hash, answer=answer, now=u.now)
