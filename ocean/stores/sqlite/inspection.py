"""Facts about a SQLite file, read without creating, migrating or locking it."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ocean.state.records import StoreFacts
from ocean.stores.sqlite.engine.connection import OLDEST_SQLITE
from ocean.stores.sqlite.migrate import migrations


def inspect_file(path: str) -> StoreFacts:
    is_new_enough = sqlite3.sqlite_version_info >= OLDEST_SQLITE
    facts = StoreFacts("SQLite", sqlite3.sqlite_version, is_new_enough, path, migrations()[-1][0])
    if path == ":memory:":
        return replace(facts, schema=facts.newest_schema, journal_mode="memory")
    if not Path(path).exists():
        return facts
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            schema = db.execute("PRAGMA user_version").fetchone()[0]
            mode = db.execute("PRAGMA journal_mode").fetchone()[0]
    except sqlite3.Error as error:
        return replace(facts, trouble=str(error))
    return replace(facts, schema=schema, journal_mode=mode)
