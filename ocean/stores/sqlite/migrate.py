"""Numbered, forward-only migrations. SQLite's `user_version` is the number of the last that has run."""

import re
import sqlite3
from importlib import resources

from ocean.state.errors import StoreUnusable

_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")


def migrations() -> list[tuple[int, str]]:
    folder = resources.files("ocean.stores").joinpath("sql")
    found = [(match[1], file) for file in folder.iterdir() if (match := _NUMBERED.fullmatch(file.name))]
    return [(int(number), file.read_text()) for number, file in sorted(found, key=lambda pair: pair[0])]


def migrate(db: sqlite3.Connection) -> None:
    """Bring the schema up to date in one transaction. Several processes may do so at once."""
    steps = migrations()
    if _version(db) == steps[-1][0]:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db)
        if version > steps[-1][0]:
            raise StoreUnusable(
                f"the database has schema {version}, this Ocean supports up to {steps[-1][0]}; upgrade ocean-runtime"
            )
        for number, script in steps:
            if number > version:
                _run_script(db, script)
                db.execute(f"PRAGMA user_version = {number}")
    except BaseException:
        db.rollback()
        raise
    db.execute("COMMIT")


def _version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def _run_script(db: sqlite3.Connection, script: str) -> None:
    """Execute a script statement by statement: `executescript` would commit the transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
