"""How many bytes are stored for a tick?

The work is that of `one_tick_runs` and of `ten_steps`, done twice with different numbers of runs, so that what an empty
database takes is not counted. On SQLite it is the pages in use, with the write-ahead log put back into the file; on
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
from bench.places import Places


class StoredBytes(Contest):
    def _ask(self, one: Contestant, places: Places, told: dict[str, Any]) -> dict[str, float] | None:
        few, many = told["few"], told["runs"]
        sizes = [self._size_after(one, places, told | {"runs": runs}) for runs in (few, many)]
        if sizes[0] is None or sizes[1] is None:
            return None
        steps = told["steps"] if one.group == "ten_steps" else 1
        return {"bytes": (sizes[1] - sizes[0]) / (many - few) / steps}

    def _size_after(self, one: Contestant, places: Places, told: dict[str, Any]) -> int | None:
        with places.place(one.store) as db:
            if self.asked(one, {"db": db, "question": one.question or one.group, **told}) is None:
                return None
            if one.store == "sqlite":
                return sum(_bytes_in_use(path) for path in Path(db).iterdir() if path.suffix in (".db", ".sqlite"))
            places.command("VACUUM FULL", db)
            return int(places.command("SELECT pg_database_size(current_database())", db)[0][0])


def _bytes_in_use(path: Path) -> int:
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
    | {"few": (200, 50, "how many runs the other time"), "runs": (1_200, 250, "how many runs")},
    rounds=1,
)

if __name__ == "__main__":
    contest.main()
