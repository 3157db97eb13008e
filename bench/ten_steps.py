"""How many durable steps per second, if every run has ten of them?

The result of a step is stored before the next one begins. In Ocean they are ten ticks, each of which reads and writes
a row, or ten steps of one tick. Concurrent callers create each run by a call of its own.

    python -m bench.ten_steps
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite-ticks", "sqlite", "ocean", benchmark="ten_ticks"),
    Contestant("ocean-sqlite-steps", "sqlite", "ocean"),
    Contestant("dbos-sqlite", "sqlite", "dbos"),
    Contestant("langgraph-sqlite", "sqlite", "langgraph", note="ten nodes in a row"),
    Contestant("ocean-postgres-ticks", "postgres", "ocean", benchmark="ten_ticks"),
    Contestant("ocean-postgres-steps", "postgres", "ocean"),
    Contestant("dbos-postgres", "postgres", "dbos"),
    Contestant("absurd-postgres", "postgres", "absurd"),
]

SIZES = {
    "runs": (500, 60, "how many runs"),
    "steps": (10, 10, "of each run"),
    "callers": (64, 64, "how many concurrent calls"),
    "connections": (16, 16, "in connection pools"),
    "concurrency": (64, 64, "of absurd's worker"),
    "absurd_workers": (4, 4, "absurd's workers"),
    "poll_ms": (10, 10, "absurd's polling interval"),
}

contest = Contest(
    __doc__,
    "ten_steps",
    CONTESTANTS,
    [Measure("per_s", "steps a second")],
    SIZES,
)

if __name__ == "__main__":
    contest.main()
