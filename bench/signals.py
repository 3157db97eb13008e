"""How many signals per second are delivered to waiting runs, and how long does each take?

Concurrent callers send signals to runs that handle one and wait again; a caller sends the next when its signal has
been handled. The latency of a signal under this load is from its call until the tick that handles it is committed.

    python -m bench.signals
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="send, and a workflow that receives; polls every 10 ms"),
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
        "callers": (64, 64, "how many concurrent calls"),
        "settle_s": (5, 3, "time for DBOS's workflows to start waiting"),
        "connections": (16, 16, "in connection pools"),
        "concurrency": (64, 64, "of absurd's worker"),
        "absurd_workers": (4, 4, "absurd's workers"),
        "poll_ms": (10, 10, "absurd's polling interval"),
    },
)

if __name__ == "__main__":
    contest.main()
