"""The part of `sqlite3` that the store uses, on top of apsw: the only driver that lets a test replace the disk.

apsw has its own SQLite. The store sees no difference: rows, row counts, errors and their codes are as in `sqlite3`.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import apsw

OPERATIONAL = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_ABORT,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_SCHEMA,
}
INTEGRITY = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}

Values = Sequence[Any] | Mapping[str, Any]
Before = Callable[[str], None]
"""Called with each statement before it is executed; may raise to refuse it."""
After = Callable[["Connection", str], None]


class Row:
    """Indexed by number and by name, as `sqlite3.Row`."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Mapping[str, int], values: tuple[Any, ...]) -> None:
        self._names, self._values = names, values

    def __getitem__(self, key: Any) -> Any:
        return self._values[self._names[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        return list(self._names)


class Cursor:
    """An executed statement. All its rows are fetched, so that it is not left open if only the first is read."""

    def __init__(self, rows: list[Row], description: list[tuple[str]], rowcount: int, lastrowid: int) -> None:
        self._rows = iter(rows)
        self.description, self.rowcount, self.lastrowid = description, rowcount, lastrowid

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)


@dataclass(frozen=True)
class Driver:
    """`connect` is for a `SqliteStore` on the disk of this name."""

    vfs: str
    before: Before = lambda sql: None
    after: After = lambda db, sql: None
    synchronous: str = "FULL"
    checkpoint_pages: int = 1_000

    def connect(self, path: str, **_: Any) -> sqlite3.Connection:
        return cast(sqlite3.Connection, Connection(path, self))


class Connection:
    def __init__(self, path: str, driver: Driver) -> None:
        self._driver = driver
        self.row_factory: Any = None
        try:
            self._db = apsw.Connection(path, vfs=driver.vfs, statementcachesize=512)
        except apsw.Error as error:
            raise as_sqlite3(error) from error
        self._db.set_wal_hook(self._checkpoint)

    def _checkpoint(self, db: apsw.Connection, name: str, pages: int) -> int:
        """Checkpoint as SQLite does itself. apsw would report a failure of it as a failure of the commit."""
        if pages >= self._driver.checkpoint_pages:
            with suppress(apsw.Error):
                db.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
        return apsw.SQLITE_OK

    def execute(self, sql: str, values: Values = ()) -> Cursor:
        sql = sql.replace("synchronous=FULL", f"synchronous={self._driver.synchronous}")
        self._driver.before(sql)
        try:
            made = self._make(sql, values)
        except apsw.Error as error:
            raise as_sqlite3(error) from error
        self._driver.after(self, sql)
        return made

    def executemany(self, sql: str, rows: Iterable[Values]) -> None:
        for values in rows:
            self.execute(sql, values)

    def _make(self, sql: str, values: Values) -> Cursor:
        cursor = self._db.cursor()
        names: dict[str, int] = {}

        def learn_names(made: apsw.Cursor, sql: str, bindings: Any) -> bool:
            names.update((name, number) for number, (name, *_) in enumerate(made.description))
            return True

        # After a statement without rows has ended, apsw no longer knows its columns.
        cursor.exec_trace = learn_names
        rows = [Row(names, row) for row in cursor.execute(sql, cast(Any, values))]
        is_change = sql.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE", "REPLAC")
        count = self._db.changes() if is_change else -1
        return Cursor(rows, [(name,) for name in names], count, self._db.last_insert_rowid())

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @property
    def total_changes(self) -> int:
        return self._db.total_changes()

    def rollback(self) -> None:
        if self.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """A failed checkpoint is not reported, as in `sqlite3`."""
        with suppress(apsw.Error):
            self._db.close()


def as_sqlite3(error: apsw.Error) -> sqlite3.Error:
    code = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
    kind: type[sqlite3.Error] = sqlite3.DatabaseError
    if code & 0xFF in OPERATIONAL:
        kind = sqlite3.OperationalError
    elif code & 0xFF in INTEGRITY:
        kind = sqlite3.IntegrityError
    return coded(kind(str(error)), code)


def coded(error: sqlite3.Error, code: int) -> sqlite3.Error:
    error.sqlite_errorcode = code
    error.sqlite_errorname = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes[code & 0xFF]  # type: ignore[assignment]
    return error
