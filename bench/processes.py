"""How many ticks a second by 1, 2 and 4 processes on one PostgreSQL, and how many round trips does each take?

They advance the same runs, each of which counts to three in its own row: one read, one write and two events a tick. How
much several processes gain is limited by the processors, which the server shares with them.

    python -m bench.processes
"""

from bench.contest import Contest, Contestant, Measure

contest = Contest(
    __doc__,
    "together",
    [
        Contestant(f"ocean-postgres-{number}", "postgres", "ocean_together", asked={"processes": number})
        for number in (1, 2, 4)
    ],
    [Measure("per_s", "ticks a second"), Measure("trips", "round trips a tick")],
    {
        "runs": (1_000, 100, "how many runs"),
        "ticks": (3, 3, "of each run"),
        "concurrency": (32, 32, "of each process"),
        "lead_s": (5, 3, "how long the processes have to come up"),
    },
    against="-1",
)

if __name__ == "__main__":
    contest.main()
