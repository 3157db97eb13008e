"""How late are timers, if many are set?

All timers are set before a window begins, for times spread evenly over it. The lag is from a timer's time until its
handler is called.

    python -m bench.timers
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("huey-sqlite", "sqlite", "huey", note="polls once a second, its shortest interval, and may be early"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="sleeps in memory"),
    Contestant("ocean-postgres", "postgres", "ocean"),
    Contestant("pgqueuer-postgres", "postgres", "pgqueuer"),
    Contestant("procrastinate-postgres", "postgres", "procrastinate", note="polls every 10 ms; its default is 5 s"),
    Contestant("absurd-postgres", "postgres", "absurd", note="polls every 10 ms; its default is 250 ms"),
    Contestant("dbos-postgres", "postgres", "dbos", note="sleeps in memory"),
]

contest = Contest(
    __doc__,
    "timers",
    CONTESTANTS,
    [Measure("p50_ms", "lag, p50, ms"), Measure("p95_ms", "lag, p95, ms")],
    {
        "timers": (2_000, 100, "how many timers"),
        "lead_s": (60, 5, "time to set the timers"),
        "window_s": (20, 2, "time from the first due timer to the last"),
        "callers": (64, 64, "how many concurrent calls"),
        "threads": (8, 8, "threads of blocking callers"),
        "workers": (4, 4, "huey's threads"),
        "connections": (16, 16, "in connection pools"),
        "managers": (1, 1, "pgqueuer's queue managers"),
        "batch": (10, 10, "pgqueuer's batch"),
        "concurrency": (64, 64, "of the workers of procrastinate and absurd"),
        "absurd_workers": (4, 4, "absurd's workers"),
        "poll_ms": (10, 10, "polling interval of procrastinate and absurd"),
    },
    rounds=3,
)

if __name__ == "__main__":
    contest.main()
