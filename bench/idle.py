"""How many queries a minute while 100,000 runs sleep and nothing is due?

Ocean is asked nothing by hand: in poke mode nobody pokes, with a ticker it is up to the ticker. On SQLite every
statement of its connections counts, on PostgreSQL every transaction of the database, whoever makes it. The peers have
nothing stored and look as often as they ship to, beside one queue.

    python -m bench.idle
"""

from bench.contest import Contest, Contestant, Measure

FULL = {"count": 100_000}
QUICK = {"count": 1_000}

CONTESTANTS = [
    Contestant("ocean-sqlite-poke", "sqlite", "ocean_idle", asked=FULL | {"has_ticker": 0}, quick=QUICK),
    Contestant("ocean-sqlite-ticker", "sqlite", "ocean_idle", asked=FULL | {"has_ticker": 1}, quick=QUICK),
    Contestant("ocean-postgres-poke", "postgres", "ocean_idle", asked=FULL | {"has_ticker": 0}, quick=QUICK),
    Contestant("ocean-postgres-ticker", "postgres", "ocean_idle", asked=FULL | {"has_ticker": 1}, quick=QUICK),
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
        "seconds": (60, 10, "how long it is counted"),
        "settle_s": (15, 12, "how long it has to come to rest; PostgreSQL counts up to 10 s late"),
        "connections": (4, 4, "in the pools of those who have one"),
        "managers": (1, 1, "pgqueuer's queue managers"),
        "batch": (10, 10, "pgqueuer's batch"),
        "concurrency": (4, 4, "procrastinate's, of its worker"),
    },
    rounds=1,
)

if __name__ == "__main__":
    contest.main()
