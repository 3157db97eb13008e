"""Units that share a transaction: one that is refused leaves no trace, and after an unexpected error each is alone."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ocean.kernel.errors import StoreBusy, StoreFailed
from ocean.stores.sqlite.transaction import Transaction

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
    """A unit in the queue, with whom to tell: a future of the event loop, or a thread that blocks."""

    unit: Unit[Any]
    waiter: asyncio.Future[None] | threading.Event
    result: Any = None
    error: BaseException | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


def run_items(db: sqlite3.Connection, items: list[Item]) -> None:
    """Commit them as one transaction; if that cannot be, each as one of its own. Each item knows its outcome then."""
    try:
        _run_group(db, items)
    except BaseException as error:
        for item in items:
            _run_alone(db, item, error)


def _run_group(db: sqlite3.Connection, items: list[Item]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        transaction = Transaction(db)
        for item in items:
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
        transaction.write()
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.rollback()
        raise


def _run_alone(db: sqlite3.Connection, item: Item, why: BaseException) -> None:
    """After an unexpected error: once more, by itself, so that only the guilty one fails. Never raises."""
    try:
        if is_busy(why):
            raise why
        _run_group(db, [item])
    except BaseException as error:
        busy = StoreBusy("another process holds the database's write lock; try again")
        failed = StoreFailed(f"the database cannot be written: {error}; look at its disk")
        item.error = busy if is_busy(error) else failed if is_failing(error) else error


def is_failing(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in FAILURES


def is_busy(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
