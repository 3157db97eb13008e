"""Make the stored databases: run the story's beginning on old code, dump the database, drive it to its end there.

Which commit made a fixture is in its first lines. To make one again, put the `ocean` and `clogs` of that commit first
on the path; `-P` keeps this tree's own from being found before them:

    git worktree add ../old COMMIT
    mkdir ../path && ln -s "$PWD/../old/ocean" "$PWD/../old/clogs" ../path
    PYTHONPATH=../path:. python -P -m tests.upgrades.make COMMIT DATABASE_URL OUT PART …

It writes OUT.sql, and OUT.json with what the old code itself made of the runs. A PostgreSQL database must be empty.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from ocean.testing import world
from tests.upgrades.acts import begin, clogs_of, drive
from tests.upgrades.dump_postgres import dump_postgres


async def _begin(commit: str, url: str, out: str, parts: Sequence[str]) -> None:
    """Write the dump while handlers are at work, and die with them."""
    async with world(clogs=clogs_of(parts), url=url) as w:
        notes = await begin(w, parts)
        dump = await dump_postgres(url) if url.startswith("postgres") else _dump_sqlite(url)
        about = f"-- Made by tests/upgrades/make.py on the code of commit {commit}, with: {', '.join(parts)}.\n"
        _write(f"{out}.sql", about + dump)
        _write(f"{out}.json", json.dumps({"parts": parts, "notes": notes}))
        os._exit(0)


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


def _dump_sqlite(url: str) -> str:
    db = sqlite3.connect(url.removeprefix("sqlite:///"))
    version = db.execute("PRAGMA user_version").fetchone()[0]
    lines = [f"-- Schema version {version} of SQLite.", *db.iterdump(), f"PRAGMA user_version = {version};"]
    db.close()
    return "\n".join(lines) + "\n"


async def _drive(url: str, out: str, stored: dict[str, Any]) -> None:
    async with world(clogs=clogs_of(stored["parts"]), url=url) as w:
        stored |= await drive(w, stored["parts"], stored["notes"])
    _write(f"{out}.json", json.dumps(stored, indent=1, sort_keys=True) + "\n")


def main(phase: str, url: str, out: str, parts: Sequence[str]) -> None:
    """Make a fixture in two processes: one that dies at work, and one that drives to the end what it has left."""
    if phase == "drive":
        anyio.run(partial(_drive, url, out, json.loads(Path(f"{out}.json").read_text())))
    elif phase.startswith("begin "):
        anyio.run(partial(_begin, phase.removeprefix("begin "), url, out, parts))
    else:
        for each in (f"begin {phase}", "drive"):
            command = [sys.executable, "-P", "-m", "tests.upgrades.make", each, url, out, *parts]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
