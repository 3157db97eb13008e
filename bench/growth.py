"""Does the cost of a verb grow with what is stored?

Ocean alone, in a database that is empty, or full of finished runs, sleeping runs or pending runs, or that contains an
old run or a long log. Each verb is called alone, one call at a time. A claim is a poke that finds one run, calls its
handler and commits; a tick is the same for a named run. All ratios to the empty database should be at most 1.3.

    python -m bench.growth
"""

from typing import Any

from bench.contest import Contest, Contestant, Measure
from bench.databases import Store

STATES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "empty": ("", {"count": 0}, {}),
    "finished": ("100,000 runs that have ended", {"count": 100_000}, {"count": 2_000}),
    "sleeping": ("100,000 runs that wait for a time", {"count": 100_000}, {"count": 2_000}),
    "pending": ("20,000 runs that are due", {"count": 20_000}, {"count": 2_000}),
    "old": ("the run has had 10,000 ticks", {"count": 10_000}, {"count": 200}),
    "events": ("a log of 1,000,000 events", {"count": 20_000, "events_each": 48}, {"count": 200}),
}


def contestants(store: Store) -> list[Contestant]:
    return [
        Contestant(
            f"ocean-{store}-{state}",
            store,
            "ocean_filled",
            settings={"state": state, "events_each": 0} | usual,
            quick=quick,
            note=note,
            group=store,
        )
        for state, (note, usual, quick) in STATES.items()
    ]


contest = Contest(
    __doc__,
    "growth",
    [*contestants("sqlite"), *contestants("postgres")],
    [
        Measure("create_ms", "a creation, p50, ms"),
        Measure("signal_ms", "a signal, p50, ms"),
        Measure("claim_ms", "a claim, p50, ms"),
        Measure("tick_ms", "a tick, p50, ms"),
    ],
    {"calls": (200, 30, "how many calls of each verb")},
    rounds=3,
    against="-empty",
)

if __name__ == "__main__":
    contest.main()
