"""How fast is the work right after a burst of creations, before the planner has statistics?

The same number of runs is worked on, once when there are no others, and once with ten times as many waiting that were
created a moment ago. The tables were last analysed when nothing was waiting, and that is what the planner believes.

    python -m bench.burst
"""

from bench.contest import Contest, Contestant, Measure


def contestants(name: str, module: str) -> list[Contestant]:
    few, many = {"count": 2_000}, {"count": 20_000}
    return [
        Contestant(f"{name}-few", "postgres", module, asked=few, quick={"count": 300}, group=name),
        Contestant(f"{name}-burst", "postgres", module, asked=many, quick={"count": 3_000}, group=name),
    ]


contest = Contest(
    __doc__,
    "burst",
    [
        *contestants("ocean-postgres", "ocean_grown"),
        *contestants("pgqueuer-postgres", "pgqueuer"),
        *contestants("procrastinate-postgres", "procrastinate"),
    ],
    [Measure("per_s", "runs a second")],
    {
        "drained": (2_000, 300, "how many are worked on"),
        "connections": (16, 16, "in the pools of those who have one"),
        "managers": (2, 2, "pgqueuer's queue managers"),
        "batch": (50, 50, "pgqueuer's batch"),
        "concurrency": (64, 64, "procrastinate's, of its worker"),
    },
    rounds=3,
    against="-few",
)

if __name__ == "__main__":
    contest.main()
