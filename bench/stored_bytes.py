"""How many bytes are stored for a tick?

The work is that of `one_tick_runs` and of `ten_steps`, done twice with different numbers of runs, so that the size of
an empty database is not counted. On SQLite the pages in use are counted, after a checkpoint of the write-ahead log; on
PostgreSQL the size of the database after a full vacuum, which leaves live rows and their indexes. A queue that deletes
its jobs keeps only a log of them.

    python -m bench.stored_bytes
"""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import one_tick_runs, ten_steps
from bench.contest import Contest, Contestant, Measure
from bench.databases import Databases


class StoredBytes(Contest):
    def _measure(self, one: Contestant, databases: Databases, settings: dict[str, Any]) -> dict[str, float] | None:
        few, many = settings["few"], settings["runs"]
        sizes = [self._size_after(one, databases, settings | {"runs": runs}) for runs in (few, many)]
        if sizes[0] is None or sizes[1] is None:
            return None
        steps = settings["steps"] if one.group == "ten_steps" else 1
        return {"bytes": (sizes[1] - sizes[0]) / (many - few) / steps}

    def _size_after(self, one: Contestant, databases: Databases, settings: dict[str, Any]) -> int | None:
        with databases.fresh(one.store) as db:
            if self.run_contestant(one, {"db": db, "benchmark": one.benchmark or one.group, **settings}) is None:
                return None
            if one.store == "sqlite":
                return sum(_bytes_in_use(path) for path in Path(db).iterdir() if path.suffix in (".db", ".sqlite"))
            databases.command("VACUUM FULL", db)
            return int(databases.command("SELECT pg_database_size(current_database())", db)[0][0])


def _bytes_in_use(path: Path) -> int:
    """Return the size of the pages of a SQLite file that are in use."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    db.close()
    return int((pages - free) * size)


def renamed(one: Contestant, group: str) -> Contestant:
    return replace(one, name=f"{one.name}-{'run' if group == 'one_tick_runs' else 'step'}", group=group)


contest = StoredBytes(
    __doc__,
    "",
    [
        *(renamed(each, "one_tick_runs") for each in one_tick_runs.CONTESTANTS),
        *(renamed(each, "ten_steps") for each in ten_steps.CONTESTANTS),
    ],
    [Measure("bytes", "bytes")],
    one_tick_runs.SIZES
    | ten_steps.SIZES
    | {"few": (200, 50, "how many runs in the smaller run"), "runs": (1_200, 250, "how many runs")},
    rounds=1,
)

if __name__ == "__main__":
    contest.main()
