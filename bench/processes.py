"""How many ticks per second do 1, 2 and 4 processes commit on one PostgreSQL, in how many round trips each?

They advance the same runs, each of which counts to three in its own row: one read, one write and two events per tick.
The gain of several processes is limited by the processors, which they share with the server.

    python -m bench.processes
"""

from bench.contest import Contest, Contestant, Measure

contest = Contest(
    __doc__,
    "together",
    [
        Contestant(f"ocean-postgres-{number}", "postgres", "ocean_processes", settings={"processes": number})
        for number in (1, 2, 4)
    ],
    [Measure("per_s", "ticks a second"), Measure("trips", "round trips a tick")],
    {
        "runs": (1_000, 100, "how many runs"),
        "ticks": (3, 3, "of each run"),
        "concurrency": (32, 32, "of each process"),
        "lead_s": (5, 3, "time for the processes to start"),
    },
    against="-1",
)

if __name__ == "__main__":
    contest.main()
