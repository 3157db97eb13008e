"""What this process knows of the ticks that it is at work on, so that their commits need not read it.

It is what its own last transactions have written. It holds until somebody else writes to the file, which SQLite tells
by the version of its data, or until a statement is run here that could have changed anything.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ocean.kernel.records import Run, RunStatus


@dataclass(slots=True)
class AtWork:
    """The run's row, its tick's row, and the numbers of the inputs that are the tick's. Childless is who was made in
    the transaction that has also claimed it, and has had no child since."""

    run: Run
    tick: dict[str, Any]
    numbers: list[int]
    is_childless: bool


class Known:
    def __init__(self) -> None:
        self._works: dict[str, AtWork] = {}
        self._state: tuple[int, int] | None = None

    def begin(self, db: sqlite3.Connection) -> None:
        """In a transaction that has its lock: from now on nobody else writes."""
        state = _state_of(db)
        if state != self._state:
            self._works.clear()
            self._state = state

    def get(self, run_id: str) -> AtWork | None:
        return self._works.get(run_id)

    def drop(self, keys: Iterable[str]) -> None:
        """Whoever has written them may yet be refused."""
        for key in keys:
            self._works.pop(key, None)

    def forget(self) -> None:
        self._works.clear()

    def commit(self, db: sqlite3.Connection) -> None:
        self._state = _state_of(db)

    def learn(self, begun: dict[str, AtWork], runs: Iterable[Run]) -> None:
        """From what has been written, in order."""
        works = self._works
        works.update(begun)
        for run in runs:
            if run.parent_run_id in works:
                works[run.parent_run_id].is_childless = False
            if run.run_id in works:
                if run.status is RunStatus.ACTIVE:
                    works[run.run_id].run = run
                else:
                    del works[run.run_id]


def _state_of(db: sqlite3.Connection) -> tuple[int, int]:
    """Changes with every commit of another connection, and with every row that this one has changed."""
    return db.execute("PRAGMA data_version").fetchone()[0], db.total_changes
