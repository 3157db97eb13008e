"""Group commit: queued units share one transaction.

A unit that is refused leaves no trace, and the others stand. After an unexpected error each unit runs again, alone.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ocean.state.errors import StoreBusy, StoreFailed
from ocean.state.records import Claim
from ocean.stores.shared.waiter import Waiter
from ocean.stores.sqlite.engine.cache import Cache
from ocean.stores.sqlite.engine.transaction import Transaction

T = TypeVar("T")
TransactionBody = Callable[[Transaction], T]

FAILURES = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PROTOCOL,
)
"""Errors of the file or its disk, which no unit has caused."""


@dataclass(eq=False, slots=True)
class QueuedUnit:
    """A unit in the queue, and what waits for it: a task on the event loop, or a blocked thread."""

    unit: TransactionBody[Any]
    waiter: Waiter | threading.Event
    result: Any = None
    error: BaseException | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


@dataclass(eq=False, slots=True, kw_only=True)
class QueuedClaim(QueuedUnit):
    """A claim. `claimed` is called with its runs before any waiter of its transaction is woken."""

    unit: TransactionBody[list[Claim]]
    waiter: Waiter = field(default_factory=Waiter)
    claimed: Callable[[list[Claim]], None]


def report_claims(units: list[QueuedUnit]) -> None:
    """Call `claimed` if the group, whose last unit is its claim if it has one, has claimed something.

    What was not claimed, for whatever reason, is found by the next poke.
    """
    claim = units[-1]
    if isinstance(claim, QueuedClaim) and claim.error is None and claim.result:
        claim.claimed(claim.result)


class ClaimQueue:
    """Claims that wait for a transaction that makes a run due."""

    def __init__(self) -> None:
        self._waiting: deque[QueuedClaim] = deque()

    def add(self, claim: QueuedClaim) -> None:
        self._waiting.append(claim)

    def remove(self, claim: QueuedClaim) -> bool:
        try:
            self._waiting.remove(claim)
        except ValueError:
            return False
        return True

    def next(self) -> QueuedClaim | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


def run_units(db: sqlite3.Connection, units: list[QueuedUnit], claims: ClaimQueue, cache: Cache) -> None:
    """Commit the units as one transaction or, if that fails, each in its own. Afterwards every unit has its outcome.

    If the transaction has made a run due, the next queued claim is appended to `units` and run in it.
    """
    try:
        _run_group(db, units, cache, claims)
    except BaseException as error:
        for unit in units:
            _run_alone(db, unit, cache, error)


def _run_group(db: sqlite3.Connection, units: list[QueuedUnit], cache: Cache, claims: ClaimQueue | None = None) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        cache.begin(db)
        transaction = Transaction(db, cache)
        for unit in units:
            _run(unit, transaction)
        claim = claims.next() if claims is not None and transaction.has_made_due else None
        if claim is not None:
            units.append(claim)
            _run(claim, transaction)
        transaction.write()
        transaction.commit()
    except BaseException:
        cache.forget()
        if db.in_transaction:
            db.rollback()
        raise


def _run(queued: QueuedUnit, transaction: Transaction) -> None:
    queued.error = None
    try:
        queued.result = queued.unit(transaction)
    except sqlite3.Error:
        raise
    except BaseException as error:
        queued.error = error
        transaction.refuse()
    else:
        transaction.accept()


def _run_alone(db: sqlite3.Connection, unit: QueuedUnit, cache: Cache, why: BaseException) -> None:
    """Run a unit again in its own transaction, so that only the unit at fault fails. Never raises."""
    try:
        if is_busy(why):
            raise why
        _run_group(db, [unit], cache)
    except BaseException as error:
        busy = StoreBusy("another process holds the database's write lock; retry")
        failed = StoreFailed(f"the database cannot be written: {error}; check its disk")
        unit.error = busy if is_busy(error) else failed if is_failing(error) else error


def is_failing(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in FAILURES


def is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
