"""How many streamed events a second, and how long until a watcher has them, with 1, 100 and 1,000?

One run streams to all who watch it, or 16 runs at once, each to its own watcher: first as fast as it goes, then at a
pace that all can follow, at which the lag is taken. `16x1` is 16 runs with a watcher each, `1x100` one run with 100.
Ocean's lag counts from the moment before an event is said, the peer's from its commit. Ocean's watchers are
Server-Sent Events of a server in another process and on another processor, as readers elsewhere are; the peer's read in
the process that writes.

    python -m bench.streams
"""

from typing import Any

from bench.contest import Contest, Contestant, Measure

WATCHED: list[dict[str, Any]] = [
    {"writers": 1, "watchers": 1, "events": 1_000, "paced": 200, "apart_ms": 10},
    {"writers": 16, "watchers": 1, "events": 200, "paced": 50, "apart_ms": 160},
    {"writers": 1, "watchers": 100, "events": 200, "paced": 50, "apart_ms": 100},
    {"writers": 1, "watchers": 1_000, "events": 20, "paced": 40, "apart_ms": 250},
]
QUICK = {"events": 20, "paced": 5}


def contestants(asked: dict[str, Any]) -> list[Contestant]:
    """The same numbers of runs and watchers side by side."""
    number = f"{asked['writers']}x{asked['watchers']}"
    return [
        Contestant(f"ocean-sqlite-{number}", "sqlite", "ocean_http", asked=asked, quick=QUICK, group=number),
        Contestant(f"dbos-sqlite-{number}", "sqlite", "dbos", asked=asked, quick=QUICK, group=number),
        Contestant(f"ocean-postgres-{number}", "postgres", "ocean_http", asked=asked, quick=QUICK, group=number),
        Contestant(f"dbos-postgres-{number}", "postgres", "dbos", asked=asked, quick=QUICK, group=number),
    ]


contest = Contest(
    __doc__,
    "streams",
    [each for asked in WATCHED for each in contestants(asked)],
    [
        Measure("per_s", "events a second"),
        Measure("p50_ms", "lag, p50, ms"),
        Measure("p95_ms", "lag, p95, ms"),
    ],
    {"connections": (16, 16, "in DBOS's pool")},
    rounds=3,
)

if __name__ == "__main__":
    contest.main()
