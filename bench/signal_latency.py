"""On a system at rest, how long from a signal until the tick that handles it is committed?

Signals are sent one by one, each after a pause, to one idle run. For a queue without signals a job is measured, from
its call until it is finished in the database. Ocean is measured in the same process, and over HTTP to a server in
another process, where the whole request is measured: it waits until the run has settled.

    python -m bench.signal_latency
"""

from bench.contest import Contest, Contestant, Measure

CONTESTANTS = [
    Contestant("ocean-sqlite", "sqlite", "ocean"),
    Contestant("ocean-sqlite-http", "sqlite", "ocean_http"),
    Contestant("huey-sqlite", "sqlite", "huey", note="polls every 1 to 10 ms; its default is 100 ms and more"),
    Contestant("dbos-sqlite", "sqlite", "dbos", note="a message to a workflow that receives; polls every 10 ms"),
    Contestant("langgraph-sqlite", "sqlite", "langgraph", note="a graph of one node, called again"),
    Contestant("ocean-postgres", "postgres", "ocean"),
    Contestant("ocean-postgres-http", "postgres", "ocean_http"),
    Contestant("pgqueuer-postgres", "postgres", "pgqueuer", note="in batches of one, which are logged at once"),
    Contestant("procrastinate-postgres", "postgres", "procrastinate"),
    Contestant("absurd-postgres", "postgres", "absurd", note="polls every 10 ms; its default is 250 ms"),
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
        "poll_ms": (10, 10, "polling interval of huey and absurd"),
        "connections": (4, 4, "in connection pools"),
        "concurrency": (4, 4, "of the workers of procrastinate and absurd"),
    },
)

if __name__ == "__main__":
    contest.main()
