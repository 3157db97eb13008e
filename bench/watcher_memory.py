"""How much memory does a server take with 1,000 watchers?

Each has a stream of Server-Sent Events open, on a run of its own that is idle. What is counted is what the process has
resident.

    python -m bench.watcher_memory
"""

from bench.contest import Contest, Contestant, Measure

contest = Contest(
    __doc__,
    "memory",
    [Contestant("ocean-sqlite", "sqlite", "ocean_http"), Contestant("ocean-postgres", "postgres", "ocean_http")],
    [
        Measure("before_mb", "without a watcher, MB"),
        Measure("mb", "with all of them, MB"),
        Measure("each_kb", "a watcher, kB"),
    ],
    {"watchers": (1_000, 50, "how many watchers"), "settle_s": (3, 1, "how long it has to come to rest")},
    rounds=3,
)

if __name__ == "__main__":
    contest.main()
