"""The database that the processes of a test share: a file, or a PostgreSQL database."""

import tempfile
from pathlib import Path

Place = Path | str
"""The path of a SQLite file, or the URL of a PostgreSQL database."""


def is_postgres(db: Place) -> bool:
    return str(db).startswith("postgresql:")


def url_of(db: Place) -> str:
    return str(db) if is_postgres(db) else f"sqlite:///{db}"


def history_of(db: Place) -> Path:
    """What handlers really did, in a file that no transaction rolls back."""
    if is_postgres(db):
        return Path(tempfile.gettempdir()) / f"{str(db).rpartition('/')[2]}.history"
    return Path(f"{db}.history")


def slower(db: Place, ms: int) -> int:
    """How long a lock lasts: a renewal takes some round trips to a busy server."""
    return ms * 5 if is_postgres(db) else ms
