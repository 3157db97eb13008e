"""How often is the disk flushed for a run?

The work is that of `one_tick_runs`, done twice with different numbers of runs, so that what everybody does once at the
start is not counted. On SQLite the calls of fsync and fdatasync are counted by strace, which must be installed; on
PostgreSQL the server counts those of its log.

    python -m bench.flushes
"""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.contest import Contest, Contestant, Measure
from bench.one_tick_runs import CONTESTANTS, SIZES
from bench.places import Places

STATISTICS_S = 1.5
"""How long the server may take until it has counted."""
COUNT = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"


class Flushes(Contest):
    def _ask(self, one: Contestant, places: Places, told: dict[str, Any]) -> dict[str, float] | None:
        few, many = told["few"], told["runs"]
        counted = [self._count(one, places, told | {"runs": runs}) for runs in (few, many)]
        if counted[0] is None or counted[1] is None:
            return None
        return {"flushes": (counted[1] - counted[0]) / (many - few)}

    def _count(self, one: Contestant, places: Places, told: dict[str, Any]) -> int | None:
        with places.place(one.store) as db:
            ask = {"db": db, "question": one.question or "one_tick_runs", **told}
            return self._by_strace(one, ask) if one.store == "sqlite" else self._by_server(one, ask, places)

    def _by_strace(self, one: Contestant, ask: dict[str, Any]) -> int | None:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace"
            under = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync"]
            if self.asked(one, ask, under) is None:
                return None
            return sum("sync(" in line for line in trace.read_text().splitlines())

    def _by_server(self, one: Contestant, ask: dict[str, Any], places: Places) -> int | None:
        before = int(places.command(COUNT)[0][0])
        answer = self.asked(one, ask)
        time.sleep(STATISTICS_S)
        return None if answer is None else int(places.command(COUNT)[0][0]) - before


HAS_STRACE = shutil.which("strace") is not None

contest = Flushes(
    __doc__,
    "one_tick_runs",
    [each for each in CONTESTANTS if each.store == "postgres" or HAS_STRACE],
    [Measure("flushes", "flushes a run")],
    SIZES | {"few": (200, 50, "how many runs the other time"), "runs": (1_200, 250, "how many runs")},
    rounds=1,
)

if __name__ == "__main__":
    contest.main()
