"""How a connection to a SQLite file is opened: its settings, and the switch to a write-ahead log."""

import sqlite3
from collections.abc import Callable

from ocean.stores.sqlite.engine.group_commit import is_busy
from ocean.stores.sqlite.migrate import check_schema

BUSY_TIMEOUT_MS = 5_000
OLDEST_SQLITE = (3, 38, 0)


def open_connection(connect: Callable[..., sqlite3.Connection], path: str) -> sqlite3.Connection:
    """Connect with `connect`, which takes the arguments of `sqlite3.connect`, and apply the settings."""
    db = connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000, cached_statements=512)
    db.row_factory = sqlite3.Row
    for pragma in (
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        f"journal_size_limit={64 * 1024 * 1024}",
        # In pages. SQLite's default of 1,000 is five busy transactions: the same pages would be copied repeatedly.
        "wal_autocheckpoint=4000",
        "trusted_schema=OFF",
    ):
        db.execute(f"PRAGMA {pragma}")
    try:
        check_schema(db)
        _use_wal(db)
    except BaseException:
        db.close()
        raise
    return db


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. SQLite fails at once if another process does so: wait for its lock, then retry."""
    for tries_left in reversed(range(20)):
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or not tries_left:
                raise
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
