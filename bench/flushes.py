"""How often is the disk flushed for a run?

The work is that of `one_tick_runs`, done twice with different numbers of runs, so that what happens once at the start
is not counted. On SQLite strace, which must be installed, counts the calls of fsync and fdatasync; on PostgreSQL the
server counts those of its log.

    python -m bench.flushes
"""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.contest import Contest, Contestant, Measure
from bench.databases import Databases
from bench.one_tick_runs import CONTESTANTS, SIZES

STATISTICS_S = 1.5
"""How late the server's statistics may be."""
COUNT = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"


class Flushes(Contest):
    def _measure(self, one: Contestant, databases: Databases, settings: dict[str, Any]) -> dict[str, float] | None:
        few, many = settings["few"], settings["runs"]
        counted = [self._count(one, databases, settings | {"runs": runs}) for runs in (few, many)]
        if counted[0] is None or counted[1] is None:
            return None
        return {"flushes": (counted[1] - counted[0]) / (many - few)}

    def _count(self, one: Contestant, databases: Databases, settings: dict[str, Any]) -> int | None:
        with databases.fresh(one.store) as db:
            request = {"db": db, "benchmark": one.benchmark or "one_tick_runs", **settings}
            return self._by_strace(one, request) if one.store == "sqlite" else self._by_server(one, request, databases)

    def _by_strace(self, one: Contestant, request: dict[str, Any]) -> int | None:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace"
            under = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync"]
            if self.run_contestant(one, request, under) is None:
                return None
            return sum("sync(" in line for line in trace.read_text().splitlines())

    def _by_server(self, one: Contestant, request: dict[str, Any], databases: Databases) -> int | None:
        before = int(databases.command(COUNT)[0][0])
        result = self.run_contestant(one, request)
        time.sleep(STATISTICS_S)
        return None if result is None else int(databases.command(COUNT)[0][0]) - before


HAS_STRACE = shutil.which("strace") is not None

contest = Flushes(
    __doc__,
    "one_tick_runs",
    [each for each in CONTESTANTS if each.store == "postgres" or HAS_STRACE],
    [Measure("flushes", "flushes a run")],
    SIZES | {"few": (200, 50, "how many runs in the smaller run"), "runs": (1_200, 250, "how many runs")},
    rounds=1,
)

if __name__ == "__main__":
    contest.main()
