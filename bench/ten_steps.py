"""How many durable steps a second, if every run takes ten of them?

The result of a step is stored before the next one begins. Ocean can keep them as ten ticks, each with a row that is
read and written, or as ten steps of one tick. Every run is created by a call of its own, by concurrent callers.

    python -m bench.ten_steps
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite-ticks", "sqlite", "ocean", question="ten_ticks"),
    Contestant("ocean-sqlite-steps", "sqlite", "ocean"),
    Contestant("dbos-sqlite", "sqlite", "dbos"),
    Contestant("langgraph-sqlite", "sqlite", "langgraph", note="ten nodes in a row"),
    Contestant("ocean-postgres-ticks", "postgres", "ocean", question="ten_ticks"),
    Contestant("ocean-postgres-steps", "postgres", "ocean"),
    Contestant("dbos-postgres", "postgres", "dbos"),
    Contestant("absurd-postgres", "postgres", "absurd"),
]

SIZES = {
    "runs": (500, 60, "how many runs"),
    "steps": (10, 10, "of each run"),
    "callers": (64, 64, "how many calls are made at once"),
    "connections": (16, 16, "in the pools of those who have one"),
    "concurrency": (64, 64, "absurd's, of its worker"),
    "absurd_workers": (4, 4, "absurd's workers"),
    "poll_ms": (10, 10, "absurd's, how often it looks"),
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
