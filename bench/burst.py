"""How fast is the work right after a burst of creations, before the planner has statistics?

The same number of runs is executed, once when there are no others, and once with ten times as many waiting that were
just created. The tables were last analysed when nothing was waiting, so the planner expects empty tables.

    python -m bench.burst
"""

from bench.contest import Contest, Contestant, Measure


def contestants(name: str, module: str) -> list[Contestant]:
    few, many = {"count": 2_000}, {"count": 20_000}
    return [
        Contestant(f"{name}-few", "postgres", module, settings=few, quick={"count": 300}, group=name),
        Contestant(f"{name}-burst", "postgres", module, settings=many, quick={"count": 3_000}, group=name),
    ]


contest = Contest(
    __doc__,
    "burst",
    [
        *contestants("ocean-postgres", "ocean_filled"),
        *contestants("pgqueuer-postgres", "pgqueuer"),
        *contestants("procrastinate-postgres", "procrastinate"),
    ],
    [Measure("per_s", "runs a second")],
    {
        "drained": (2_000, 300, "how many are executed"),
        "connections": (16, 16, "in connection pools"),
        "managers": (2, 2, "pgqueuer's queue managers"),
        "batch": (50, 50, "pgqueuer's batch"),
        "concurrency": (64, 64, "of procrastinate's worker"),
    },
    rounds=3,
    against="-few",
)

if __name__ == "__main__":
    contest.main()
