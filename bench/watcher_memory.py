"""How much memory does a server take with 1,000 watchers?

Each watcher has an open stream of Server-Sent Events on an idle run of its own. The resident memory of the process is
measured.

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
    {"watchers": (1_000, 50, "how many watchers"), "settle_s": (3, 1, "time to come to rest")},
    rounds=3,
)

if __name__ == "__main__":
    contest.main()
