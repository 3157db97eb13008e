"""How many streamed events per second, and with what lag, do 1, 100 and 1,000 watchers receive?

One run streams to all its watchers, or 16 runs at once, each to one watcher: first as fast as possible, then at a pace
that all can follow, at which the lag is measured. `16x1` is 16 runs with a watcher each, `1x100` one run with 100.
Ocean's lag counts from the moment before an event is streamed, the peer's from its commit. Ocean's watchers read
Server-Sent Events from a server in another process and on another processor, like remote readers; the peer's watchers
read in the process that writes.

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


def contestants(settings: dict[str, Any]) -> list[Contestant]:
    """Return the contestants for one number of runs and watchers."""
    number = f"{settings['writers']}x{settings['watchers']}"
    return [
        Contestant(f"ocean-sqlite-{number}", "sqlite", "ocean_http", settings=settings, quick=QUICK, group=number),
        Contestant(f"dbos-sqlite-{number}", "sqlite", "dbos", settings=settings, quick=QUICK, group=number),
        Contestant(f"ocean-postgres-{number}", "postgres", "ocean_http", settings=settings, quick=QUICK, group=number),
        Contestant(f"dbos-postgres-{number}", "postgres", "dbos", settings=settings, quick=QUICK, group=number),
    ]


contest = Contest(
    __doc__,
    "streams",
    [each for settings in WATCHED for each in contestants(settings)],
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
