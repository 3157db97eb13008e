"""`ocean schedule`, as it is typed."""

import json
from typing import Any

import pytest

from tests.cli.kit import Answer, Shell


def add(ocean: Shell, name: str, *words: object, **more: Any) -> Answer:
    return ocean("schedule", "add", name, "--clog", "shop", "--input", '{"do": "done"}', *words, **more)


def test_a_schedule_is_added_shown_listed_and_fires(ocean: Shell) -> None:
    run_id = add(ocean, "soon", "--every", "1s", "--times", "1").out.strip()
    assert add(ocean, "soon", "--every", "1s", "--times", "1").out.strip() == run_id
    shown = ocean.json("schedule", "show", "soon")
    assert (shown["run_id"], shown["spec"]["every_ms"], shown["fired"]) == (run_id, 1_000, 0)
    listed = ocean("schedule", "list", COLUMNS="120").out.splitlines()
    assert listed[0].split() == ["NAME", "SESSION", "TIMES", "FIRES", "STATUS", "FIRED", "NEXT"]
    assert listed[1].startswith("soon  default  every 1000 ms  shop   waiting  0")
    assert "times   Every 1000 ms" in ocean("schedule", "show", run_id).out
    fired = ocean("schedule", "trigger", "soon").out.strip()
    assert ocean.json("show", fired)["run"]["parentRunId"] == run_id
    for _ in range(200):
        ocean("advance", "--until-idle", OCEAN_CLOGS="tests.cli.shop:both,clogs.schedule:schedule")
        if ocean("schedule", "list").out == "no schedules\n":
            break
    assert ocean.json("schedule", "show", run_id)["fired"] == 1
    assert [run["runId"] for run in ocean.json("schedule", "list", "--everything")["runs"]] == [run_id]


def test_a_schedule_is_paused_resumed_and_removed_by_its_name(ocean: Shell) -> None:
    run_id = add(ocean, "nightly", "--cron", "0 3 * * *", "--zone", "Europe/Lisbon", "--session", "s").out.strip()
    for verb, text, is_paused in (("pause", "paused", True), ("resume", "resumed", False), ("pause", "paused", True)):
        assert ocean("schedule", verb, "nightly", "--session", "s").out == f"{text} nightly\n"
        assert ocean.json("schedule", "show", run_id)["paused"] is is_paused
    assert ocean("schedule", "remove", "nightly", "--session", "s").out == "removed nightly\n"
    gone = ocean("schedule", "show", "nightly", "--session", "s")
    assert (gone.code, "there is no schedule 'nightly' in session 's'" in gone.err) == (3, True)
    assert add(ocean, "nightly", "--cron", "0 4 * * *", "--session", "s").out.strip() != run_id


def test_the_next_times_are_shown_without_a_schedule_too(ocean: Shell) -> None:
    shown = ocean("schedule", "next", "--cron", "0 9 * * *", "--zone", "Asia/Kolkata", "-n", "2").out.splitlines()
    assert [line[10:] for line in shown] == ["T09:00:00+05:30", "T09:00:00+05:30"]
    add(ocean, "once", "--cron", "0 9 * * *", "--times", "1")
    assert len(ocean.json("schedule", "next", "once")) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--cron", "61 * * * *"], 2, "the minute '61' is invalid; it must be 0-59"),
        (["--cron", "0 9 * * *", "--zone", "Lisbon"], 2, "there is no time zone 'Lisbon'"),
        (["--every", "often"], 2, "--every must be a duration"),
        ([], 2, "exactly one of cron and every_ms must be given"),
        (["--cron", "0 9 * * *", "--missed", "never"], 2, "missed: Input should be"),
        (["--cron", "0 9 * * *", "--clog", "shopp"], 3, "there is no clog 'shopp'; did you mean 'shop'?"),
        (["--cron", "0 9 * * *", "--end", "2020-01-01"], 2, "would never fire"),
    ],
    ids=str,
)
def test_a_wrong_option_is_reported_in_one_line_and_nothing_is_created(
    ocean: Shell, words: list[str], code: int, text: str
) -> None:
    refused = add(ocean, "n", *words)
    assert (refused.code, refused.out) == (code, "")
    assert text in refused.err
    assert ocean("schedule", "list").out == "no schedules\n"


def test_a_name_that_is_taken_is_refused_with_an_envelope(ocean: Shell) -> None:
    add(ocean, "n", "--every", "1h")
    refused = add(ocean, "n", "--every", "2h", "--json")
    assert (refused.code, json.loads(refused.err)["error"]["code"]) == (1, "schedule_exists")


def test_a_run_of_another_clog_is_no_schedule(ocean: Shell) -> None:
    run_id = ocean.create()
    for verb in ("show", "pause", "remove", "next", "trigger"):
        assert ocean("schedule", verb, run_id).code == 3
    assert ocean("schedule", "next").code == 2


def test_the_help_has_examples(ocean: Shell) -> None:
    result = ocean("schedule", "add", "--help", COLUMNS="120").out
    assert "ocean schedule add nightly --cron '0 3 * * *' --zone Europe/Lisbon --clog report\n" in result
