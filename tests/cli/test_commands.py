"""The commands on runs, as they are typed."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from ocean import Ocean
from tests.cli import shop
from tests.cli.kit import PATIENCE_S, Shell
from tests.cli.shop import both

SHOP_SOURCE = Path(shop.__file__).read_text(encoding="utf-8").splitlines()


def test_a_run_is_created_advanced_and_shown(ocean: Shell) -> None:
    run_id = ocean("create", "shop", "--input", '{"do": "sell", "what": "tea"}', "--session", "s").out.strip()
    assert ocean("advance").out == "1 tick: 1 ok\nnothing is due\n"
    shown = ocean.json("show", run_id)
    assert shown["run"]["status"] == "idle"
    assert shown["run"]["sessionId"] == "s"
    assert [tick["outcome"] for tick in shown["ticks"]] == ["ok"]
    assert [each["body"] for each in shown["inputs"]] == [{"do": "sell", "what": "tea"}]
    assert [event["type"] for event in shown["events"]] == ["run.created", "sold", "tick.committed"]
    assert [hold["code"] for hold in shown["explain"]["holds"]] == ["idle"]
    text = ocean("show", run_id).out
    for word in (run_id, "sold", '{"what": "tea"}', "idle: the inbox is empty"):
        assert word in text


def test_what_users_stored_keeps_its_spelling_in_json(ocean: Shell) -> None:
    body = {"do": "done", "output": {"snake_case": {"an_id": 1}}}
    made = ocean.json("create", "shop", "--input", json.dumps(body), "--wait", "30s", "--attr", "my_name=x")
    assert (made["output"], made["attributes"]) == ({"snake_case": {"an_id": 1}}, {"my_name": "x"})


def test_waiting_for_a_run_that_fails_exits_with_one(ocean: Shell) -> None:
    failed = ocean("create", "shop", "--input", '{"do": "fail"}', "--wait", "30s")
    assert (failed.code, failed.err) == (1, "")
    assert "sold out" in failed.out
    late = ocean("create", "shop", "--input", '{"do": "wait"}', "--wait", "0ms", "--json")
    assert (late.code, late.error["code"]) == (1, "result_timeout")


@pytest.mark.parametrize("how", ["text", "file", "stdin"])
def test_inputs_are_text_a_file_or_standard_input(ocean: Shell, how: str) -> None:
    body = '{"do": "done", "output": "ä"}'
    (ocean.folder / "input.json").write_text(body, encoding="utf-8")
    text = {"text": body, "file": "@input.json", "stdin": "-"}[how]
    made = ocean.json("create", "shop", "--input", text, "--wait", "30s", input=body if how == "stdin" else None)
    assert made["output"] == "ä"


def test_advance_until_idle_continues_past_its_budget(ocean: Shell) -> None:
    for _ in range(3):
        ocean.create()
    first = ocean.json("advance", "--max-ticks", 1)
    assert (first["advanced"], first["dueNow"]) == (1, 2)
    rest = ocean.json("advance", "--until-idle", "--budget", "1s", "--concurrency", 1)
    assert (rest["advanced"], rest["dueNow"], rest["nextWakeAt"]) == (2, 0, None)
    waiting = ocean.create("wait")
    assert ocean("advance", waiting).out.startswith("1 tick: 1 wait\nnext due in 59m, at ")


def test_a_dry_run_is_shown_and_changes_nothing(ocean: Shell) -> None:
    run_id = ocean.json("create", "shop", "--input", '{"do": "sell", "what": "tea"}')["runId"]
    assert ocean("advance", run_id, "--dry-run").out.splitlines() == [
        "tick 1, call 1, reason created; nothing is committed",
        '  input      {"do": "sell", "what": "tea"}',
        '  event      sold  {"what": "tea"}',
        '  row        run of shop: new -> {"sold": "tea"}',
        "  outcome    Ok()",
    ]
    shown = ocean.json("advance", run_id, "--dry-run")["dryRun"]
    assert shown["outcome"] == {"type": "ok"}
    assert ocean.json("ps")["runs"][0]["status"] == "pending"
    ocean("advance")
    assert ocean("advance", run_id, "--dry-run").out.startswith("The run would not be claimed now:\n  idle: ")
    assert ocean("advance", "--dry-run").code == 2


def test_signals_wake_a_run_and_repeat_without_effect(ocean: Shell) -> None:
    run_id = ocean.json("create", "shop")["runId"]
    first = ocean.json("signal", run_id, "--input", '{"do": "done"}', "--signal-id", "once")
    assert first["number"] == 1
    assert ocean.json("signal", run_id, "--input", '{"do": "done"}', "--signal-id", "once") == first
    ocean("advance")
    late = ocean("signal", run_id)
    assert (late.code, late.out) == (1, "")
    assert late.err.startswith("ocean: run ")
    later = ocean.json("create", "shop")["runId"]
    ocean.json("signal", later, "--at", "10m")
    assert ocean.json("advance")["nextWakeAt"] is not None


def test_a_method_can_be_called_on_a_run_and_on_a_clog(ocean: Shell) -> None:
    run_id = ocean.create()
    assert ocean("call", run_id, "price", "--payload", '"tea"').json == {"price": 3, "of": "tea"}
    assert ocean.json("call", "price", "--clog", "shop") == {"price": 3, "of": None}
    refused = ocean("call", run_id, "price", "-p", '"nothing"', "--json")
    assert (refused.code, refused.error["code"]) == (1, "no_price")
    unknown = ocean("call", run_id, "prize")
    assert (unknown.code, unknown.err) == (3, "ocean: clog 'shop' has no method 'prize'; did you mean 'price'?\n")
    assert ocean("call", run_id).code == 2


def test_ps_filters_as_list_runs_does(ocean: Shell) -> None:
    ids = [ocean.create("done", "--session", f"s{n % 2}", "--attr", f"size={n}") for n in range(4)]
    ocean("advance", "--max-ticks", 2)

    def found(*args: object) -> list[int]:
        return [ids.index(run["runId"]) for run in ocean.json("ps", *args)["runs"]]

    assert found() == [3, 2, 1, 0]
    assert found("--status", "done") == [1, 0]
    assert found("--session", "s1", "--order", "oldest") == [1, 3]
    assert found("--clog", "shop", "--attr", "size>=1", "--attr", "size<3") == [1, 2]
    assert found("--clog", "shop", "--attr", "size=0", "--attr", "size=3") == [3, 0]
    assert found("--created-since", "1h") == [3, 2, 1, 0]
    assert found("--created-until", "1h") == []
    assert found("--ended-since", "2020-01-01") == [1, 0]
    assert found("--parent", ids[0]) == []
    page = ocean.json("ps", "--limit", 3)
    assert found("--limit", 3, "--cursor", page["nextCursor"]) == [0]
    assert f"more: --cursor {page['nextCursor']}" in ocean("ps", "--limit", 3).out
    assert ocean("ps", "--status", "failed").out == "no runs\n"


def test_runs_are_cancelled_paused_resumed_retried_and_deleted_by_id(ocean: Shell) -> None:
    run_id = ocean.create("wait")
    assert ocean("pause", run_id).out == f"paused {run_id}\n"
    assert "paused: the run is paused" in ocean("explain", run_id).out
    assert ocean.json("resume", run_id)["paused"] is False
    assert ocean("explain", run_id).out == "The run is due: the next advance here claims it.\n"
    assert ocean("cancel", run_id, "--reason", "closed").out == f"cancelled {run_id}\n"
    assert ocean.json("show", run_id)["run"]["error"]["message"] == "closed"
    again = ocean.json("retry", run_id)
    assert (again["retryOf"], again["status"]) == (run_id, "pending")
    assert ocean("retry", run_id).out == f"retried {run_id}: {again['runId']}\n"
    assert ocean.json("delete", run_id) == {"runId": run_id, "deleted": 1}
    assert ocean("show", run_id).code == 3


def test_several_runs_are_processed_in_order_until_the_first_refusal(ocean: Shell) -> None:
    one, two = ocean.create("wait"), ocean.create("wait")
    stopped = ocean("cancel", one, "nobody", two)
    assert (stopped.code, stopped.out) == (3, f"cancelled {one}\n")
    assert ocean.json("show", two)["run"]["status"] == "pending"
    both = ocean.json("pause", two, ocean.create("wait"))
    assert [run["paused"] for run in both] == [True, True]
    for command in ("cancel", "pause", "delete", "signal", "retry"):
        assert ocean(command, one, two, "--request-key", "k").code == 2
    assert ocean("delete", "--clog", "shop", "--request-key", "k", "--yes").code == 2
    assert ocean.json("delete", two, "--request-key", "k") == ocean.json("delete", two, "--request-key", "k")


def test_a_whole_clog_is_paused_and_resumed(ocean: Shell) -> None:
    ocean.create()
    assert ocean("pause", "--clog", "shop").out == "paused clog shop\n"
    assert ocean.json("advance")["advanced"] == 0
    assert "paused" in ocean("clogs").out
    assert ocean.json("resume", "--clog", "shop")["paused"] is False
    assert ocean.json("advance")["advanced"] == 1
    assert ocean("pause").code == 2
    assert ocean("pause", "--clog", "shpo").code == 3


def test_many_runs_are_acted_on_by_filters(ocean: Shell) -> None:
    for _ in range(3):
        ocean.create("fail")
    ocean.create("done", "--session", "other")
    unconfirmed = ocean("cancel", "--session", "default")
    assert (unconfirmed.code, unconfirmed.err) == (2, "ocean: this would cancel 3 runs; use --yes to confirm\n")
    assert ocean.json("ps", "--status", "pending")["runs"].__len__() == 4
    assert ocean("cancel", "--session", "other", "--yes").out == "cancelled 1 run\n"
    ocean("advance")
    assert ocean.json("retry", "--clog", "shop", "--session", "default", "-y", "--most", 2)["more"] is True
    signalled = ocean("signal", "--status", "pending", "--signal-id", "x", "-y", "--rate", 1_000)
    assert signalled.out == "signalled 2 runs\n"
    assert ocean("signal", "--status", "pending", "-y").code == 2
    assert ocean("delete", "--yes").code == 2
    assert ocean("delete", "--everything", "--clog", "shop", "--yes").code == 2
    assert ocean("delete", "some-run", "--everything", "--yes").code == 2
    assert ocean("delete", "--everything", "--yes").out == "deleted 6 runs\n"
    assert ocean("delete", "--everything", "--yes").out == "deleted 0 runs\n"


def test_limits_are_set_and_listed(ocean: Shell) -> None:
    assert ocean("limit", "list").out == "no keys\n"
    assert ocean.json("limit", "set", "mail", 2) == {"key": "mail", "limit": 2, "inUse": 0, "parked": 0}
    assert ocean("limit", "get", "mail").out == "KEY   LIMIT  IN USE  PARKED\nmail  2      0       0\n"
    assert [key["key"] for key in ocean.json("limit", "list")] == ["mail"]
    assert ocean("limit", "set", "mail", -1).code == 2


def test_old_rows_are_swept(ocean: Shell) -> None:
    ocean.create()
    ocean("advance")
    assert ocean.json("sweep")["runs"] == 0
    assert ocean("sweep", "--events", "0ms", "--runs", "0ms").out.startswith("removed ")
    assert ocean.json("ps")["runs"] == []


def test_a_session_is_deleted_with_its_runs_and_rows(ocean: Shell) -> None:
    for name in ("s 1", "s 1", "other"):
        ocean("create", "shop", "--input", '{"do": "sell", "what": "tea"}', "--session", name)
    ocean("advance")
    refused = ocean("delete-session", "s 1")
    assert (refused.code, len(ocean.json("ps")["runs"])) == (2, 3)
    assert "this would delete session 's 1' with 2 runs; use --yes" in refused.err
    assert ocean("delete-session", "s 1", "--yes", "--actor", "ada").out == "deleted session s 1 with 2 runs\n"
    assert [run["sessionId"] for run in ocean.json("ps")["runs"]] == ["other"]
    again = ocean.json("delete-session", "other", "--yes", "--request-key", "k")
    assert again == {"sessionId": "other", "deleted": 1}
    assert ocean.json("delete-session", "other", "--yes", "--request-key", "k") == again
    assert ocean.json("delete-session", "other", "--yes")["deleted"] == 0


def test_migrate_creates_the_database_once(ocean: Shell) -> None:
    first = ocean.json("migrate")
    assert (first["from"], first["to"] > 0) == (0, True)
    assert ocean("migrate").out == f"schema {first['to']}, up to date\n"


def test_the_log_is_printed_from_a_cursor(ocean: Shell) -> None:
    run_id = ocean.create()
    ocean("advance")
    lines = [json.loads(line) for line in ocean("tail", run_id, "--json").out.splitlines()]
    assert [line["type"] for line in lines] == ["run.created", "tick.committed", "run.done"]
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert [line["id"] for line in lines] == [f"{run_id}:{n}" for n in (1, 2, 3)]
    rest = ocean("tail", run_id, "--after", 2, "--json").out.splitlines()
    assert [json.loads(line) for line in rest] == lines[2:]
    ended = ocean("tail", "--no-follow", "--type", "run.done").out
    assert run_id in ended
    assert len(ended.splitlines()) == 1
    assert ocean("tail", "nobody").code == 3
    assert ocean("tail", "--no-follow", "--after", 99).code == 2
    assert ocean("tail", run_id, "--clog", "shop").code == 2


def test_settings_come_from_flags_or_the_environment(ocean: Shell) -> None:
    ocean("create", "shop", "--db", "sqlite:///mine.db")
    assert (ocean.folder / "mine.db").exists()
    assert not (ocean.folder / "ocean.db").exists()
    assert len(ocean.json("ps", OCEAN_DB="sqlite:///mine.db")["runs"]) == 1
    made = ocean.json("create", "counter", "--clogs", "clogs.counter:counter", "--input", "{}", "--wait", "30s")
    assert made["output"] == {"n": 3}


def test_commands_on_stored_runs_do_not_import_clogs(ocean: Shell) -> None:
    run_id = ocean.create("wait")
    (ocean.folder / "ruin.py").write_text("raise SystemExit('imported')\n")
    for args in (["ps"], ["cancel", run_id], ["limit", "list"], ["tail", "--no-follow"], ["sweep"]):
        assert ocean(*args, OCEAN_CLOGS="ruin:clog").code == 0


def test_without_clogs_the_error_explains_how_to_name_them(ocean: Shell) -> None:
    refused = ocean("create", "shop", OCEAN_CLOGS="")
    assert (refused.code, refused.err) == (
        3,
        "ocean: no instance has registered a clog 'shop'; there are: none; "
        "no clogs are loaded: name them with --clogs or OCEAN_CLOGS\n",
    )
    assert "OCEAN_CLOGS" not in ocean("create", "shup").err
    assert "OCEAN_CLOGS" not in ocean("pause", "--clog", "shup").err
    ocean.create("wait")
    assert "this would delete 1 run; use --yes" in ocean("delete", "--everything").err


WRONG: list[tuple[list[Any], int, str]] = [
    (["create", "shop", "--input", "{"], 2, "--input must be JSON"),
    (["create", "shop", "--input", '{"a": 1, "a": 2}'], 2, "an object has 'a' twice"),
    (["create", "shop", "--input", "[" * 50_000], 2, "it is nested too deeply"),
    (["create", "shop", "--attr", f"a={'[' * 50_000}"], 2, "attribute 'a'"),
    (["create", "shop", "--input", "tea"], 2, "a string needs quotes"),
    (["create", "shop", "--input", "@nowhere.json"], 2, "cannot read 'nowhere.json'"),
    (["create", "shop", "--attr", "size"], 2, "--attr must be NAME=VALUE"),
    (["create", "shop", "--deadline", "soon"], 2, "--deadline must be 10m or 2h (from now)"),
    (["create", "shpo"], 3, "did you mean 'shop'?"),
    (["create", "shop", "--clogs", "nowhere:x"], 2, "there is no module 'nowhere'"),
    (["advance", "--budget", "10"], 2, "--budget must be a duration such as 500ms"),
    (["advance", "nobody"], 3, "there is no run 'nobody'"),
    (["ps", "--status", "asleep"], 2, "status must be one of"),
    (["ps", "--attr", "size=1"], 2, "attributes need a clog_id"),
    (["ps", "--created-since", "yesterday"], 2, "--created-since must be 10m or 2h (ago)"),
    (["ps", "--cursor", "x"], 2, "cursor"),
    (["ps", "--watch"], 2, "--watch must be used on a terminal"),
    (["explain", "nobody"], 3, "there is no run 'nobody'"),
    (["show", "nobody"], 3, "there is no run 'nobody'"),
    (["signal", "nobody"], 3, "'nobody'"),
    (["cancel"], 2, "cancel must have run ids"),
    (["ps", "--db", "mysql://x"], 4, "the database URL must be"),
    (["ps", "--db", "sqlite:///no/such/folder/x.db"], 4, "cannot open SQLite database"),
    (["serve", "--host", "0.0.0.0"], 2, "while there are no API keys"),
    (["serve", "--host", "example.org"], 2, "while there are no API keys"),
    (["sweep", "--events", "old"], 2, "--events must be a duration"),
]


@pytest.mark.parametrize(("args", "code", "reason"), WRONG)
def test_a_refusal_is_one_line_or_the_envelope_and_never_a_traceback(
    ocean: Shell, args: list[Any], code: int, reason: str
) -> None:
    result = ocean(*args)
    assert (result.code, result.out) == (code, "")
    assert reason in result.err
    assert result.err.startswith("ocean: ")
    assert result.err.count("\n") == 1
    envelope = ocean(*args, "--json")
    assert (envelope.code, envelope.out) == (code, "")
    assert reason in envelope.error["message"]
    assert set(envelope.error) == {"code", "message", "httpStatus", "retryable", "requestId", "details"}


def test_text_from_the_database_cannot_control_the_terminal(ocean: Shell) -> None:
    bad = "\x1b[2J\x9b31m"
    body = json.dumps({"do": "done", "output": bad, "pad": 1})
    ocean("create", "shop", "--input", body, "--attr", f"name={bad}x", "--wait", "30s", "--session", "s\u202ex")
    run_id = ocean.json("ps")["runs"][0]["runId"]
    for args in (["ps"], ["show", run_id], ["tail", run_id]):
        assert not any(c in ocean(*args).out for c in "\x1b\x9b\u202e")


def test_the_name_of_a_worker_cannot_control_the_terminal_either(ocean: Shell) -> None:
    async def lease() -> str:
        async with Ocean.open("sqlite:///ocean.db", clogs=both()) as opened:
            made = await opened.create_run(session_id="s", clog_id="porter", input={})
            assert await opened.claim_work("porter", worker_id="w\x1b[2J")
            return made.run_id

    run_id = anyio.run(lease)
    assert "w\\x1b[2J" in ocean("show", run_id).out
    assert "\x1b" not in ocean("show", run_id).out


@pytest.mark.parametrize(
    ("args", "result"),
    [
        (["ps", "--nothing"], "No such option: --nothing"),
        (["show"], "Missing argument 'RUN_ID'"),
        (["ps", "--limit", "x"], "Invalid value for '--limit'"),
        (["nothing"], "No such command 'nothing'"),
        (["limit", "set", "k"], "Missing argument 'N'"),
    ],
)
def test_wrong_usage_is_an_envelope_with_json(ocean: Shell, args: list[str], result: str) -> None:
    page = ocean(*args)
    assert (page.code, page.out) == (2, "")
    assert result in page.err
    assert "Usage: ocean" in page.err
    envelope = ocean(*args, "--json")
    assert (envelope.code, envelope.out) == (2, "")
    assert result in envelope.error["message"]
    assert {**envelope.error, "message": ""} == {
        "code": "wrong_usage",
        "message": "",
        "httpStatus": 400,
        "retryable": False,
        "requestId": None,
        "details": {},
    }


def test_help_is_printed_with_json_too(ocean: Shell) -> None:
    result = ocean("ps", "--json", "--help")
    assert (result.code, result.err) == (0, "")
    assert "Usage: ocean ps" in result.out


def test_a_bulk_command_stopped_by_a_busy_database_exits_with_four(ocean: Shell) -> None:
    ocean.create("wait")
    with closing(sqlite3.connect("ocean.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        result = ocean("cancel", "--everything", "--yes")
    assert (result.code, result.out) == (4, "")
    assert result.err.startswith("ocean: stopped after 0 of 1 runs: another process holds the database's write lock")


def test_a_new_clog_overwrites_no_file(ocean: Shell) -> None:
    assert ocean("new", "clog", "mailer").code == 0
    before = {path: path.read_text() for path in Path("mailer").iterdir()}
    again = ocean("new", "clog", "mailer")
    assert (again.code, again.err) == (1, "ocean: mailer already exists in this folder; nothing was written\n")
    assert {path: path.read_text() for path in Path("mailer").iterdir()} == before
    for name in ("json", "anyio"):
        assert "would shadow" in ocean("new", "clog", name).err
    for name in ("Mailer", "my-mailer", "class", "../x", ""):
        assert ocean("new", "clog", name).code == 2
    assert sorted(path.name for path in ocean.folder.iterdir()) == ["mailer"]


def test_show_and_explain_have_the_place_and_the_traceback_of_the_last_error(ocean: Shell) -> None:
    place = re.compile(r"ValueError: the till is jammed, at tests/cli/shop\.py:(\d+) in advance")
    line = SHOP_SOURCE.index('            raise ValueError("the till is jammed")') + 1
    for attempts, why in ((2, "backing_off: attempt 1 failed"), (1, "ended: the run has ended (failed)")):
        run_id = ocean.create("break", "--max-attempts", attempts)
        ocean("advance")
        shown, explained = ocean("show", run_id).out, ocean("explain", run_id).out
        assert re.search(rf"raised at +tests/cli/shop\.py:{line} in advance", shown)
        assert f'File "tests/cli/shop.py", line {line}, in advance\n    raise ValueError(' in shown
        found = place.search(explained.replace("\n", " "))
        assert found is not None
        assert int(found[1]) == line
        assert explained.startswith(why)
        assert explained.endswith("\nValueError: the till is jammed\n")
        error = ocean.json("show", run_id)["run"]["error"]
        assert (error["where"]["file"], error["where"]["line"]) == ("tests/cli/shop.py", line)
        assert ocean.json("explain", run_id)["error"] == error


def test_a_command_shows_a_failed_attempt_on_standard_error_unless_it_prints_json(ocean: Shell) -> None:
    for flag, lines in ((None, 1), ("--json", 0)):
        ocean.create("break")
        process = ocean.start("advance", *([flag] if flag else []))
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        assert out
        assert err.count("ValueError: the till is jammed, at tests/cli/shop.py:") == lines
        assert len(err.splitlines()) == lines
