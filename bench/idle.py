"""How many queries a minute while 100,000 runs sleep and nothing is due?

No request is made: without a ticker no poke arrives, with a ticker only the ticker acts. On SQLite every statement of
Ocean's connections counts, on PostgreSQL every transaction of the database. The peers have nothing stored and one
queue, and poll at their default interval.

    python -m bench.idle
"""

from bench.contest import Contest, Contestant, Measure

FULL = {"count": 100_000}
QUICK = {"count": 1_000}

CONTESTANTS = [
    Contestant("ocean-sqlite-poke", "sqlite", "ocean_idle", settings=FULL | {"has_ticker": 0}, quick=QUICK),
    Contestant("ocean-sqlite-ticker", "sqlite", "ocean_idle", settings=FULL | {"has_ticker": 1}, quick=QUICK),
    Contestant("ocean-postgres-poke", "postgres", "ocean_idle", settings=FULL | {"has_ticker": 0}, quick=QUICK),
    Contestant("ocean-postgres-ticker", "postgres", "ocean_idle", settings=FULL | {"has_ticker": 1}, quick=QUICK),
    Contestant("pgqueuer-postgres", "postgres", "pgqueuer"),
    Contestant("procrastinate-postgres", "postgres", "procrastinate"),
    Contestant("absurd-postgres", "postgres", "absurd"),
    Contestant("dbos-postgres", "postgres", "dbos"),
]

contest = Contest(
    __doc__,
    "idle",
    CONTESTANTS,
    [Measure("per_minute", "queries a minute")],
    {
        "seconds": (60, 10, "how long queries are counted"),
        "settle_s": (15, 12, "time to come to rest; PostgreSQL counts up to 10 s late"),
        "connections": (4, 4, "in connection pools"),
        "managers": (1, 1, "pgqueuer's queue managers"),
        "batch": (10, 10, "pgqueuer's batch"),
        "concurrency": (4, 4, "of procrastinate's worker"),
    },
    rounds=1,
)

if __name__ == "__main__":
    contest.main()
