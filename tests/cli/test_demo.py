"""`ocean demo` in a real process, on a real file, which kills a real worker process."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ocean import Clog, Event, Ocean
from ocean.cli.demo.checks import Check, HalfTick, Sent, check_all
from ocean.cli.main import app

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b["


def ocean_command(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return subprocess.run(
        [sys.executable, "-m", "ocean", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean | {"PYTHONPATH": str(ROOT)} | environment,
        check=False,
    )


def test_help_lists_the_demo_and_the_version_is_printed() -> None:
    answer = ocean_command("--help")
    assert answer.returncode == 0
    assert "demo" in answer.stdout
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("ocean ")
    described = CliRunner().invoke(app, ["demo", "--help"])
    assert described.exit_code == 0
    assert "--db" in described.stdout
    assert "--runs" in described.stdout


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--runs", "0"], "--runs"),
        (["--runs", "51"], "--runs"),
        (["--runs", "many"], "--runs"),
        (["--db", "/dev/null/ocean.db"], "/dev/null/ocean.db"),
        (["--db", "no/such/folder/ocean.db"], "no/such/folder/ocean.db"),
        (["--db", "."], ", but . exists"),
        (["--colour"], "--colour"),
    ],
)
def test_a_demo_that_cannot_start_is_refused_with_the_reason_and_exit_two(args: list[str], reason: str) -> None:
    answer = CliRunner().invoke(app, ["demo", *args])
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert reason in answer.stderr.splitlines()[-1]


def test_a_database_that_exists_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    mine.write_text("dear diary")
    answer = ocean_command("demo", "--db", mine)
    assert answer.returncode == 2
    assert answer.stderr == f"ocean demo: --db must be a new file, but {mine} exists\n"
    assert mine.read_text() == "dear diary"


@pytest.mark.anyio
async def test_the_demo_kills_a_worker_and_another_finishes_with_nothing_lost_or_repeated(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    answer = ocean_command("demo", "--db", path)
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    text = answer.stdout
    assert "kill -9 " in text
    assert ": crash of worker-" in text
    assert "6 of 6 runs are done" in text
    assert "18 of 18 signals were consumed, each exactly once" in text
    assert text.rstrip().endswith(f"Nothing lost, nothing done twice.\nThe database is kept: {path}")
    assert ESCAPE not in text
    assert max(map(len, text.splitlines()[:-1])) <= 80

    async with Ocean.open(f"sqlite:///{path}", clogs=[Clog("courier")]) as ocean:
        runs = (await ocean.list_runs()).runs
        assert [str(run.status) for run in runs] == ["done"] * 6
        assert {run.output["parcels"] for run in runs} == {3}
        log = await ocean.read_events(limit=1_000)
        delivered = [event for event in log if event.type == "courier.delivered"]
        assert Counter((e.run_id, e.payload["parcel"]) for e in delivered) == {
            (run.run_id, parcel): 1 for run in runs for parcel in (1, 2, 3)
        }
        restarted = {(e.run_id, e.tick) for e in log if e.type == "tick.restarted"}
        calls = Counter((e.run_id, e.tick) for e in log if e.type == "courier.spoke")
        assert restarted
        # A tick may have been killed between its claim and its first event.
        assert restarted >= {tick for tick, times in calls.items() if times == 2}
        assert max(calls.values()) == 2


def test_with_json_the_demo_prints_only_its_results(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    answer = ocean_command("demo", "--runs", 1, "--db", path, "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    document = json.loads(answer.stdout)
    assert (document["ok"], document["db"], len(document["checks"])) == (True, str(path), 8)
    assert document["checks"][2] == {"promise": "1 of 1 runs are done", "faults": []}
    again = ocean_command("demo", "--db", path, "--json")
    assert (again.returncode, again.stdout) == (2, "")
    assert json.loads(again.stderr)["error"]["code"] == "demo_refused"


def test_one_run_in_a_narrow_terminal_without_colour() -> None:
    answer = ocean_command("demo", "--runs", 1, COLUMNS="36", FORCE_COLOR="1", NO_COLOR="1")
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 36
    assert ESCAPE not in answer.stdout
    assert "1 of 1 runs are done" in answer.stdout


class TestChecksFindFaults:
    """A small correct log, which the test breaks in one way at a time."""

    SENT = Sent({"r": "Ada"}, {"r": 5}, {("r", 1)})
    HALF = HalfTick("r", 1, {"parcels": 0, "kilos": 0}, 1)
    LOG = (
        Event(1, 0, "run.created", {}, run_id="r", run_seq=1),
        Event(2, 0, "courier.spoke", {"receipt": "x"}, run_id="r", run_seq=2, tick=1, call=1),
        Event(3, 0, "tick.restarted", {"because": "crash"}, run_id="r", run_seq=3, tick=1, call=2),
        Event(4, 0, "courier.spoke", {"receipt": "x"}, run_id="r", run_seq=4, tick=1, call=2),
        Event(
            5, 0, "courier.delivered", {"receipt": "x", "parcels": 1, "kilos": 5}, run_id="r", run_seq=5, tick=1, call=2
        ),
        Event(6, 0, "tick.committed", {"inputs": [1]}, run_id="r", run_seq=6, tick=1, call=2),
        Event(7, 0, "run.done", {}, run_id="r", run_seq=7, tick=1, call=2),
    )

    async def verdicts(self, log: Sequence[Event], half: HalfTick = HALF, kilos: int = 5) -> list[Check]:
        clog = Clog("courier")
        async with Ocean.open("sqlite://:memory:", clogs=[clog]) as ocean:
            run = await ocean.create_run(session_id="s", clog_id="courier", run_id="r")
        done = replace(run, status="done", output={"kilos": kilos})  # type: ignore[arg-type]
        return check_all(self.SENT, half, [done], log, self.LOG)

    async def broken(self, log: Sequence[Event], half: HalfTick = HALF, kilos: int = 5) -> set[int]:
        return {i for i, check in enumerate(await self.verdicts(log, half, kilos)) if check.faults}

    @pytest.mark.anyio
    async def test_each_fault_fails_its_check(self) -> None:
        log = list(self.LOG)
        assert await self.broken(log) == set()
        assert await self.broken(log, half=replace(self.HALF, row={"parcels": 1, "kilos": 5})) == {0}
        assert await self.broken(log, half=replace(self.HALF, pending=0)) == {0}
        other = replace(log[3], payload={"receipt": "y"})
        assert await self.broken([*log[:3], other, *log[4:]]) == {1}
        assert await self.broken(log, kilos=10) == {5}
        lost = replace(log[5], payload={"inputs": []})
        assert await self.broken([*log[:5], lost, log[6]]) == {3}
        twice = replace(log[5], seq=8, run_seq=8)
        assert await self.broken([*log, twice]) == {3, 4, 7}
        assert await self.broken([log[0], *log[2:]]) == {6, 7}
