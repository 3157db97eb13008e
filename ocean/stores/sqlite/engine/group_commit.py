"""Units that share a transaction: one that is refused leaves no trace, and after an unexpected error each is alone."""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ocean.state.errors import StoreBusy, StoreFailed
from ocean.state.records import Claim
from ocean.stores.shared.waiter import Waiter
from ocean.stores.sqlite.engine.cache import Known
from ocean.stores.sqlite.engine.transaction import Transaction

T = TypeVar("T")
Unit = Callable[[Transaction], T]

FAILURES = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PROTOCOL,
)
"""Of the file or its disk, and of nobody who asked."""


@dataclass(eq=False, slots=True)
class Item:
    """A unit in the queue, with whom to tell: somebody on the event loop, or a thread that blocks."""

    unit: Unit[Any]
    waiter: Waiter | threading.Event
    result: Any = None
    error: BaseException | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


@dataclass(eq=False, slots=True, kw_only=True)
class Ordered(Item):
    """A claim, with who is told of what it took before anybody hears of its transaction."""

    unit: Unit[list[Claim]]
    waiter: Waiter = field(default_factory=Waiter)
    claimed: Callable[[list[Claim]], None]


def tell_of_claims(items: list[Item]) -> None:
    """An order is the last of its group. What was not claimed, for whatever reason, is found by the next poke."""
    order = items[-1]
    if isinstance(order, Ordered) and order.error is None and order.result:
        order.claimed(order.result)


class Orders:
    """Claims that wait for a transaction that makes something due."""

    def __init__(self) -> None:
        self._waiting: deque[Ordered] = deque()

    def put(self, order: Ordered) -> None:
        self._waiting.append(order)

    def take_back(self, order: Ordered) -> bool:
        try:
            self._waiting.remove(order)
        except ValueError:
            return False
        return True

    def next(self) -> Ordered | None:
        try:
            return self._waiting.popleft()
        except IndexError:
            return None


def run_items(db: sqlite3.Connection, items: list[Item], orders: Orders, known: Known) -> None:
    """Commit them as one transaction; if that cannot be, each as one of its own. Each item knows its outcome then.

    If something has become due, the next order is one of them.
    """
    try:
        _run_group(db, items, known, orders)
    except BaseException as error:
        for item in items:
            _run_alone(db, item, known, error)


def _run_group(db: sqlite3.Connection, items: list[Item], known: Known, orders: Orders | None = None) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        known.begin(db)
        transaction = Transaction(db, known)
        for item in items:
            _run(item, transaction)
        order = orders.next() if orders is not None and transaction.has_woken else None
        if order is not None:
            items.append(order)
            _run(order, transaction)
        transaction.write()
        transaction.commit()
    except BaseException:
        known.forget()
        if db.in_transaction:
            db.rollback()
        raise


def _run(item: Item, transaction: Transaction) -> None:
    item.error = None
    try:
        item.result = item.unit(transaction)
    except sqlite3.Error:
        raise
    except BaseException as error:
        item.error = error
        transaction.refuse()
    else:
        transaction.accept()


def _run_alone(db: sqlite3.Connection, item: Item, known: Known, why: BaseException) -> None:
    """After an unexpected error: once more, by itself, so that only the guilty one fails. Never raises."""
    try:
        if is_busy(why):
            raise why
        _run_group(db, [item], known)
    except BaseException as error:
        busy = StoreBusy("another process holds the database's write lock; try again")
        failed = StoreFailed(f"the database cannot be written: {error}; look at its disk")
        item.error = busy if is_busy(error) else failed if is_failing(error) else error


def is_failing(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in FAILURES


def is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
