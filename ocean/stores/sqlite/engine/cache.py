"""What this process knows without looking: the ticks that it is at work on, so that their commits need not read them,
the clogs, sessions, the last cursor, and whether anybody has a turn.

It is what its own last transactions have written. It holds until somebody else writes to the file, which SQLite tells
by the version of its data, or until a statement is run here that could have changed anything.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ocean.state.records import ClogRecord, Run, RunStatus

MOST_SESSIONS = 10_000


@dataclass(slots=True)
class AtWork:
    """The run's row, its tick's row, and the numbers of the inputs that are the tick's. Childless is who was made in
    the transaction that has also claimed it, and has had no child since."""

    run: Run
    tick: dict[str, Any]
    numbers: list[int]
    is_childless: bool


class Known:
    """`clogs` are those that somebody has looked at, `sessions` some that are there, `seq` is the highest cursor ever
    given out; None is not known."""

    def __init__(self) -> None:
        self._works: dict[str, AtWork] = {}
        self._version = 0
        self._changes = -1
        self.clogs: dict[str, ClogRecord | None] = {}
        self.sessions: set[str] = set()
        self.seq: int | None = None
        self.has_turns: bool | None = None

    def begin(self, db: sqlite3.Connection) -> None:
        """In a transaction that has its lock: from now on nobody else writes.

        The version changes with every commit of another connection, the number with every row that this one changes.
        """
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if (version, db.total_changes) != (self._version, self._changes):
            self.forget()
            self._version = version

    def get(self, run_id: str) -> AtWork | None:
        return self._works.get(run_id)

    def drop(self, keys: Iterable[str]) -> None:
        """Whoever has written them may yet be refused."""
        for key in keys:
            self._works.pop(key, None)

    def forget(self) -> None:
        self._works.clear()
        self.clogs.clear()
        self.sessions.clear()
        self.seq = None
        self.has_turns = None

    def commit(self, db: sqlite3.Connection, seq: int | None) -> None:
        self._changes = db.total_changes
        self.seq = seq

    def learn_sessions(self, written: Iterable[str]) -> None:
        """Not all of them for ever: to write one that is there again costs little."""
        if len(self.sessions) > MOST_SESSIONS:
            self.sessions.clear()
        self.sessions.update(written)

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
