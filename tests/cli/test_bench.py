"""`ocean bench`: measures a database without touching other runs."""

import anyio
import pytest

from ocean import Ocean
from ocean.cli.commands.bench import CLOG_ID, bench_clog, private_session
from tests.cli.kit import Shell

FIGURES = {
    *("runsPerSecond", "ticksPerSecond", "stepsPerSecond", "streamedPerSecond"),
    *("signalP50Ms", "signalP95Ms"),
}


def test_bench_measures_and_leaves_other_runs_alone(ocean: Shell) -> None:
    mine = ocean.create()
    measured = ocean.json("bench", "--runs", 20)
    assert set(measured["figures"]) == FIGURES
    assert all(value > 0 for value in measured["figures"].values())
    assert (measured["runs"], measured["database"]["engine"], measured["database"]["place"]) == (
        20,
        "SQLite",
        "ocean.db",
    )
    assert [run["runId"] for run in ocean.json("ps")["runs"]] == [mine]
    assert ocean.json("show", mine)["run"]["status"] == "pending"
    result = ocean("tail", "--clog", CLOG_ID, "--type", "run.done", "--after", 0, "--no-follow", "--json")
    assert len(result.out.splitlines()) == 20 + 2 + 2 + 1, "of one tick, of ten, of ten steps, and the one that streams"


def test_every_figure_has_a_line(ocean: Shell) -> None:
    answer = ocean("bench", "--runs", 10)
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:7]] == [
        "runs of one tick, created and done",
        "ticks, ten in a run",
        "durable steps, ten in a tick",
        "events streamed by one handler",
        "a signal and its tick, median",
        "a signal and its tick, 95th percentile",
    ]
    assert "stay in the log" in lines[-1]


@pytest.mark.parametrize(
    ("args", "reason"), [(["--runs", "9"], "--runs"), (["--db", "mysql://x"], "the database URL must be")]
)
def test_a_bench_that_cannot_start_is_refused_with_the_reason(ocean: Shell, args: list[str], reason: str) -> None:
    answer = ocean("bench", *args)
    assert answer.code in (2, 4)
    assert reason in answer.err


@pytest.mark.anyio
async def test_runs_of_the_bench_are_removed_also_if_it_is_interrupted(url: str) -> None:
    async with Ocean.open(url, clogs=[bench_clog()]) as here:
        with anyio.CancelScope() as scope:
            async with private_session(here) as session_id:
                await here.create_run(session_id=session_id, clog_id=CLOG_ID, input={})
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert (await here.count_runs(session_id=session_id)).count == 0
