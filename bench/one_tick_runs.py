"""How many runs a second are created and finished, if each is over in one tick?

Every run is created by a call of its own, by concurrent callers, while the same process works on them. The time is
from the first call until the last run is finished in the database. Each contestant syncs as it ships.

    python -m bench.one_tick_runs
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("huey-sqlite", "sqlite", "huey", note="as shipped, which is SQLite's default: WAL, synchronous FULL"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="workflows called directly"),
    Contestant(
        "dbos-sqlite-queue",
        "sqlite",
        "dbos",
        question="one_tick_runs_by_queue",
        note="by way of a queue, polled every 10 ms",
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
        question="one_tick_runs_by_queue",
        note="by way of a queue, polled every 10 ms",
    ),
]

SIZES = {
    "runs": (2_000, 300, "how many runs"),
    "callers": (64, 64, "how many calls are made at once"),
    "threads": (8, 8, "callers of those who block"),
    "workers": (4, 4, "huey's threads"),
    "procrastinate_workers": (4, 4, "procrastinate's workers"),
    "absurd_workers": (4, 4, "absurd's workers"),
    "poll_ms": (10, 10, "huey's and absurd's, how often they look"),
    "connections": (16, 16, "in the pools of those who have one"),
    "managers": (2, 2, "pgqueuer's queue managers"),
    "batch": (50, 50, "pgqueuer's batch"),
    "concurrency": (64, 64, "procrastinate's and absurd's, of their workers"),
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
