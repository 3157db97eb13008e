"""Numbered, forward-only migrations. SQLite's `user_version` is the number of the last that has run."""

import re
import sqlite3
from functools import cache
from importlib import resources

from ocean.stores.shared.schema import refuse_newer_schema

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
        refuse_newer_schema(version, steps[-1][0])
        for number, script in steps:
            if number > version:
                _run_script(db, script)
                db.execute(f"PRAGMA user_version = {number}")
    except BaseException:
        db.rollback()
        raise
    db.execute("COMMIT")


def check_schema(db: sqlite3.Connection) -> None:
    """Refuse a database with a newer schema. This only reads, so it comes before whatever writes or waits."""
    refuse_newer_schema(_version(db), _newest())


@cache
def _newest() -> int:
    return migrations()[-1][0]


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
