"""Runs that ended without their last tick: `ocean ps --end-incomplete`, `show`, `explain`, `doctor`, `retry-end`."""

import pytest

from tests.cli.kit import SHOP, Shell

MESSY = {"OCEAN_CLOGS": f"{SHOP},tests.cli.shop:messy"}


@pytest.fixture
def runs(ocean: Shell) -> list[str]:
    """Two runs that ended incomplete, after one that failed."""
    ocean.create("fail")
    made = [ocean("create", "messy", "--json", **MESSY).json["runId"] for _ in range(2)]
    for run_id in made:
        ocean("cancel", run_id, **MESSY)
    ocean("advance", **MESSY)
    return made


def incomplete(ocean: Shell) -> list[str]:
    return [run["runId"] for run in ocean.json("ps", "--end-incomplete")["runs"]]


def test_they_are_listed_shown_and_explained(ocean: Shell, runs: list[str]) -> None:
    assert incomplete(ocean) == runs[::-1]
    assert incomplete(ocean)[0] in ocean("ps", "--end-incomplete", "--status", "failed").out
    shown = ocean("show", runs[0], COLUMNS="120", **MESSY).out
    assert "last tick  missing: 1 attempt failed; call it again: ocean retry-end\n" in shown
    assert ocean("explain", runs[0], COLUMNS="200", **MESSY).out == (
        "ended: the run has ended (failed) without its last tick, after 1 attempt; "
        "call it again with retry_end (ocean retry-end); the last error: cancelled: cancelled\n"
    )
    assert ocean.json("show", runs[0])["run"]["endIncomplete"] is True


def test_the_doctor_reports_them(ocean: Shell, runs: list[str]) -> None:
    found = ocean("doctor", "--json", **MESSY)
    assert found.code == 1
    assert f"2 runs ended without their last tick, the newest {runs[1]}" in found.out
    assert "ocean retry-end" in found.out
    ocean("retry-end", *runs, **MESSY)
    ocean("advance", **MESSY)
    assert "none missing" in ocean("doctor", **MESSY).out


def test_the_last_tick_is_called_again_for_named_runs(ocean: Shell, runs: list[str]) -> None:
    assert ocean("retry-end", runs[0], **MESSY).out == f"retried the end of {runs[0]}\n"
    assert ocean("retry-end", runs[0], **MESSY).code == 1
    ocean("advance", **MESSY)
    assert incomplete(ocean) == [runs[1]]
    assert ocean("show", runs[0], **MESSY).out.count("missing") == 0
    key = ["--request-key", "k", "--json"]
    again = ocean("retry-end", runs[1], *key, **MESSY).json
    assert (again["status"], again["endIncomplete"], again["ending"]) == ("pending", False, "cancel")
    assert ocean("retry-end", runs[1], *key, **MESSY).json == again
    assert ocean("retry-end", "none", **MESSY).code == 3


def test_the_last_tick_is_called_again_for_runs_selected_by_filters(ocean: Shell, runs: list[str]) -> None:
    assert ocean("retry-end", "--yes").code == 2
    unconfirmed = ocean("retry-end", "--everything", **MESSY)
    assert (unconfirmed.code, unconfirmed.err) == (
        2,
        "ocean: this would retry the end of 2 runs; use --yes to confirm\n",
    )
    assert ocean("retry-end", "--clog", "shop", "--yes").out == "retried the end of 0 runs\n"
    assert ocean("retry-end", "--clog", "messy", "--yes", **MESSY).out == "retried the end of 2 runs\n"
    ocean("advance", **MESSY)
    assert incomplete(ocean) == []
