"""How many signals a second into runs that wait for them, and how long does each take?

Concurrent callers send them to runs that handle one and wait again; a caller sends the next when its signal has been
handled. A signal's latency, under this load, is from its call until the tick that handles it is committed.

    python -m bench.signals
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="send, and a workflow that receives; looks every 10 ms"),
    Contestant("langgraph-sqlite", "sqlite", "langgraph", note="a thread that is interrupted, and resumed"),
    Contestant("ocean-postgres", "postgres", "ocean"),
    Contestant("dbos-postgres", "postgres", "dbos", note="send, and a workflow that receives"),
    Contestant("absurd-postgres", "postgres", "absurd", note="emit_event, and a task that awaits it"),
]

contest = Contest(
    __doc__,
    "signals",
    CONTESTANTS,
    [
        Measure("per_s", "signals a second"),
        Measure("p50_ms", "latency, p50, ms"),
        Measure("p95_ms", "latency, p95, ms"),
    ],
    {
        "signals": (2_000, 200, "how many signals"),
        "runs": (200, 50, "how many runs wait for them"),
        "callers": (64, 64, "how many calls are made at once"),
        "settle_s": (5, 3, "how long DBOS's workflows have to begin to wait"),
        "connections": (16, 16, "in the pools of those who have one"),
        "concurrency": (64, 64, "absurd's, of its worker"),
        "absurd_workers": (4, 4, "absurd's workers"),
        "poll_ms": (10, 10, "absurd's, how often it looks"),
    },
)

if __name__ == "__main__":
    contest.main()
