"""How late are timers, if many are set?

They are set for moments that are spread evenly over a window, all before it begins. The lag is from that moment until
the handler is called.

    python -m bench.timers
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("huey-sqlite", "sqlite", "huey", note="looks once a second, the least it allows, and may be early"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="sleeps in memory"),
    Contestant("ocean-postgres", "postgres", "ocean"),
    Contestant("pgqueuer-postgres", "postgres", "pgqueuer"),
    Contestant("procrastinate-postgres", "postgres", "procrastinate", note="looks every 10 ms; it ships with 5 s"),
    Contestant("absurd-postgres", "postgres", "absurd", note="looks every 10 ms; it ships with 250 ms"),
    Contestant("dbos-postgres", "postgres", "dbos", note="sleeps in memory"),
]

contest = Contest(
    __doc__,
    "timers",
    CONTESTANTS,
    [Measure("p50_ms", "lag, p50, ms"), Measure("p95_ms", "lag, p95, ms")],
    {
        "timers": (2_000, 100, "how many timers"),
        "lead_s": (60, 5, "how long there is to set them"),
        "window_s": (20, 2, "how long it takes until the last is due"),
        "callers": (64, 64, "how many calls are made at once"),
        "threads": (8, 8, "callers of those who block"),
        "workers": (4, 4, "huey's threads"),
        "connections": (16, 16, "in the pools of those who have one"),
        "managers": (1, 1, "pgqueuer's queue managers"),
        "batch": (10, 10, "pgqueuer's batch"),
        "concurrency": (64, 64, "procrastinate's and absurd's, of their workers"),
        "absurd_workers": (4, 4, "absurd's workers"),
        "poll_ms": (10, 10, "procrastinate's and absurd's, how often they look"),
    },
    rounds=3,
)

if __name__ == "__main__":
    contest.main()
