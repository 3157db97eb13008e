"""What this process remembers between transactions: the ticks that it has open, so that their commits need not read
them, the clogs, some sessions, the last cursor, and whether any tick has a turn.

All of it was read or written by the connection's own transactions. The package's docstring lists when it is dropped.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ocean.state.records import ClogRecord, Run, RunStatus

MOST_SESSIONS = 10_000


@dataclass(slots=True)
class OpenTick:
    """A claimed tick: the run's row, the tick's row, and the numbers of the inputs that the tick has.

    A run is childless if it was created in the transaction that also claimed it, and has had no child since.
    """

    run: Run
    tick: dict[str, Any]
    numbers: list[int]
    is_childless: bool


class Cache:
    """`clogs` are those that were looked up (None: there is no such clog), `sessions` some that exist, `seq` is the
    highest cursor ever assigned; a `seq` or `has_turns` of None is unknown."""

    def __init__(self) -> None:
        self._open_ticks: dict[str, OpenTick] = {}
        self._version = 0
        self._changes = -1
        self.clogs: dict[str, ClogRecord | None] = {}
        self.sessions: set[str] = set()
        self.seq: int | None = None
        self.has_turns: bool | None = None

    def begin(self, db: sqlite3.Connection) -> None:
        """Empty the cache if the file has changed since the last commit. The transaction must have the write lock.

        The data version changes with every commit of another connection, `total_changes` with every row that this
        connection changes.
        """
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if (version, db.total_changes) != (self._version, self._changes):
            self.forget()
            self._version = version

    def get(self, run_id: str) -> OpenTick | None:
        return self._open_ticks.get(run_id)

    def drop(self, keys: Iterable[str]) -> None:
        """Remove the open ticks of these runs: a unit that may still be refused has written them."""
        for key in keys:
            self._open_ticks.pop(key, None)

    def forget(self) -> None:
        self._open_ticks.clear()
        self.clogs.clear()
        self.sessions.clear()
        self.seq = None
        self.has_turns = None

    def commit(self, db: sqlite3.Connection, seq: int | None) -> None:
        self._changes = db.total_changes
        self.seq = seq

    def learn_sessions(self, written: Iterable[str]) -> None:
        """Remember sessions that exist, a bounded number of them: to insert an existing one again is cheap."""
        if len(self.sessions) > MOST_SESSIONS:
            self.sessions.clear()
        self.sessions.update(written)

    def learn(self, begun: dict[str, OpenTick], runs: Iterable[Run]) -> None:
        """Remember what has been written: new ticks, then the runs in the order in which they were written."""
        ticks = self._open_ticks
        ticks.update(begun)
        for run in runs:
            if run.parent_run_id in ticks:
                ticks[run.parent_run_id].is_childless = False
            if run.run_id in ticks:
                if run.status is RunStatus.ACTIVE:
                    ticks[run.run_id].run = run
                else:
                    del ticks[run.run_id]
