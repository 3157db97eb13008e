"""On a system at rest, how long from a signal until the tick that handles it is committed?

Signals are sent one after the other, each after a pause, to one run that is idle. Of a queue without signals it is a
job, from its own call until it is finished in the database. In the same process, and over HTTP to a server in another,
where it is the whole request that is measured: it waits until the run has settled.

    python -m bench.signal_latency
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("ocean-sqlite-http", "sqlite", "ocean_http"),
    Contestant("huey-sqlite", "sqlite", "huey", note="looks every 1 to 10 ms; it ships with 100 ms and more"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="a message to a workflow that receives; looks every 10 ms"),
    Contestant("langgraph-sqlite", "sqlite", "langgraph", note="a graph of one node, called again"),
    Contestant("ocean-postgres", "postgres", "ocean"),
    Contestant("ocean-postgres-http", "postgres", "ocean_http"),
    Contestant("pgqueuer-postgres", "postgres", "pgqueuer", note="in batches of one, which are logged at once"),
    Contestant("procrastinate-postgres", "postgres", "procrastinate"),
    Contestant("absurd-postgres", "postgres", "absurd", note="looks every 10 ms; it ships with 250 ms"),
    Contestant("dbos-postgres", "postgres", "dbos", note="a message to a workflow that receives"),
]

contest = Contest(
    __doc__,
    "signal_latency",
    CONTESTANTS,
    [
        Measure("p50_ms", "to the commit, p50, ms"),
        Measure("p95_ms", "to the commit, p95, ms"),
        Measure("handler_p50_ms", "to the handler, p50, ms"),
    ],
    {
        "signals": (300, 40, "how many signals"),
        "workers": (1, 1, "huey's threads"),
        "absurd_workers": (1, 1, "absurd's workers"),
        "poll_ms": (10, 10, "huey's and absurd's, how often they look"),
        "connections": (4, 4, "in the pools of those who have one"),
        "concurrency": (4, 4, "procrastinate's and absurd's, of their workers"),
    },
)

if __name__ == "__main__":
    contest.main()
