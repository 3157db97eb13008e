"""How many runs per second are created and finished, if each ends in one tick?

Concurrent callers create each run by a call of its own, while the same process executes them. The time is from the
first call until the last run is finished in the database. Each contestant syncs as it does by default.

    python -m bench.one_tick_runs
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("huey-sqlite", "sqlite", "huey", note="default settings, which are SQLite's: WAL, synchronous FULL"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="workflows called directly"),
    Contestant(
        "dbos-sqlite-queue",
        "sqlite",
        "dbos",
        benchmark="one_tick_runs_by_queue",
        note="through a queue, polled every 10 ms",
    ),
    Contestant("langgraph-sqlite", "sqlite", "langgraph"),
    Contestant("ocean-postgres", "postgres", "ocean"),
    Contestant("pgqueuer-postgres", "postgres", "pgqueuer"),
    Contestant("procrastinate-postgres", "postgres", "procrastinate"),
    Contestant("absurd-postgres", "postgres", "absurd"),
    Contestant("dbos-postgres", "postgres", "dbos", note="workflows called directly"),
    Contestant(
        "dbos-postgres-queue",
        "postgres",
        "dbos",
        benchmark="one_tick_runs_by_queue",
        note="through a queue, polled every 10 ms",
    ),
]

SIZES = {
    "runs": (2_000, 300, "how many runs"),
    "callers": (64, 64, "how many concurrent calls"),
    "threads": (8, 8, "threads of blocking callers"),
    "workers": (4, 4, "huey's threads"),
    "procrastinate_workers": (4, 4, "procrastinate's workers"),
    "absurd_workers": (4, 4, "absurd's workers"),
    "poll_ms": (10, 10, "polling interval of huey and absurd"),
    "connections": (16, 16, "in connection pools"),
    "managers": (2, 2, "pgqueuer's queue managers"),
    "batch": (50, 50, "pgqueuer's batch"),
    "concurrency": (64, 64, "of the workers of procrastinate and absurd"),
}

contest = Contest(
    __doc__,
    "one_tick_runs",
    CONTESTANTS,
    [Measure("per_s", "runs a second")],
    SIZES,
)

if __name__ == "__main__":
    contest.main()
