"""Real processes that get SIGTERM or Ctrl-C while a tick is at work: they end cleanly, and no run spends an attempt."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.cli.kit import PATIENCE_S, Shell
from tests.cli.test_processes import ended, next_json, send_request, started
from tests.postgres.server import fresh_database, return_database

pytestmark = pytest.mark.xdist_group("processes")
# ruff: noqa: SIM117

CLOGS = "tests.cli.stopped:all_three"
POKED = ("serve", "--port", 0, "--json", "--no-ticker")
BOUND_S = 8
"""A stop that gives back at once ends within this, starting of processes aside."""


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield "sqlite:///ocean.db"
        return
    url = fresh_database()
    yield url
    return_database(url)


def until_begun(ocean: Shell, db: str, calls: int = 1) -> None:
    """Wait until the handler has been called that many times."""
    with started(ocean, "tail", "--after", 0, "--type", "begun", "--json", OCEAN_DB=db) as tail:
        next_json(tail)
        assert tail.stdout is not None
        # Without `select`, which does not see lines that are buffered here already.
        for _ in range(calls - 1):
            assert tail.stdout.readline()


def run_of(ocean: Shell, db: str, run_id: str = "r") -> Any:
    return ocean.json("show", run_id, OCEAN_DB=db)["run"]


def assert_free(ocean: Shell, db: str) -> None:
    run = run_of(ocean, db)
    assert (run["status"], run["attempt"], run["lockedBy"]) == ("pending", 0, None)


def create(url: str, clog: str = "gated") -> HTTPConnection:
    connection = send_request(url, "/v1/runs", {"sessionId": "s", "clogId": clog, "input": {}, "runId": "r"})
    assert connection.getresponse().status == 201
    return connection


def wake(url: str) -> HTTPConnection:
    """Send a request that changes something, so that a poke follows it."""
    body = {"sessionId": "s", "clogId": "gated"}
    connection = send_request(url, "/v1/runs", body)
    assert connection.getresponse().status == 201
    return connection


def assert_line(err: str, number: int, clog: str = "gated", grace: str = "8 s") -> None:
    again = " again" if number == signal.SIGINT else ""
    assert err == (
        f"stopping: waiting for 1 tick ({clog} r tick 1) for at most {grace}; press Ctrl-C{again} to stop at once, "
        "their runs are then given back\n"
    )


def test_four_stops_during_a_poked_tick_spend_no_attempt_and_then_the_run_completes(ocean: Shell, db: str) -> None:
    environ = {"OCEAN_DB": db, "OCEAN_CLOGS": CLOGS}
    for stops in range(4):
        with started(ocean, *POKED, "--stop-grace", "100ms", **environ) as server:
            url = next_json(server)["url"]
            with closing(create(url) if not stops else wake(url)):
                until_begun(ocean, db, stops + 1)
                code, err = ended(server, signal.SIGTERM)
        assert code == 0
        assert_line(err, signal.SIGTERM, grace="0.1 s")
        assert_free(ocean, db)
    (ocean.folder / "gate").touch()
    ocean("advance", OCEAN_DB=db, OCEAN_CLOGS=CLOGS)
    assert run_of(ocean, db)["output"] == "finished"


def test_after_one_ctrl_c_the_tick_completes(ocean: Shell, db: str) -> None:
    with started(ocean, *POKED, OCEAN_DB=db, OCEAN_CLOGS=CLOGS) as server:
        with closing(create(next_json(server)["url"])):
            until_begun(ocean, db)
            server.send_signal(signal.SIGINT)
            line = read_line(server)
            (ocean.folder / "gate").touch()
            _, err = server.communicate(timeout=PATIENCE_S)
    assert_line(line, signal.SIGINT)
    assert (server.returncode, err) == (130, "")
    assert run_of(ocean, db)["output"] == "finished"


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.readline()


@pytest.mark.parametrize("options", [("--no-ticker",), ()], ids=["poked", "ticker"])
@pytest.mark.parametrize("clog", ["gated", "threaded", "shielded"])
def test_a_second_ctrl_c_gives_the_run_back_at_once(clog: str, options: tuple[str, ...], ocean: Shell) -> None:
    db = "sqlite:///ocean.db"
    with started(ocean, *POKED[:4], *options, "--stop-grace", "60s", OCEAN_CLOGS=CLOGS) as server:
        with closing(create(next_json(server)["url"], clog)):
            until_begun(ocean, db)
            server.send_signal(signal.SIGINT)
            assert_line(read_line(server), signal.SIGINT, clog, "60 s")
            began = time.monotonic()
            assert ended(server, signal.SIGINT) == (130, "")
            assert time.monotonic() - began < BOUND_S
    assert_free(ocean, db)


@pytest.mark.parametrize("clog", ["threaded", "shielded"])
def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_sigterm(clog: str, ocean: Shell, db: str) -> None:
    with started(ocean, *POKED, "--stop-grace", "100ms", OCEAN_DB=db, OCEAN_CLOGS=CLOGS) as server:
        with closing(create(next_json(server)["url"], clog)):
            until_begun(ocean, db)
            began = time.monotonic()
            code, err = ended(server, signal.SIGTERM)
            assert time.monotonic() - began < BOUND_S
    assert code == 0
    assert_line(err, signal.SIGTERM, clog, "0.1 s")
    assert_free(ocean, db)


@pytest.mark.parametrize("path", ["/v1/advance", "/v1/runs/r/signal?waitMs=60000"])
def test_a_request_that_called_the_tick_gets_its_response(path: str, ocean: Shell) -> None:
    db = "sqlite:///ocean.db"
    ocean.json("create", "gated", "--run-id", "r", "--input", "{}", OCEAN_CLOGS=CLOGS)
    with started(ocean, *POKED, "--stop-grace", "100ms", OCEAN_CLOGS=CLOGS) as server:
        with closing(send_request(next_json(server)["url"], path, {})) as request:
            until_begun(ocean, db)
            code, err = ended(server, signal.SIGTERM)
            answer = request.getresponse()
            assert (answer.status, bool(json.load(answer))) == (202 if "waitMs" in path else 200, True)
    assert code == 0
    assert_line(err, signal.SIGTERM, grace="0.1 s")
    assert_free(ocean, db)


def test_a_reader_whose_stream_called_the_tick_is_closed(ocean: Shell, db: str) -> None:
    ocean.json("create", "gated", "--run-id", "r", "--input", "{}", OCEAN_DB=db, OCEAN_CLOGS=CLOGS)
    with started(ocean, *POKED, "--stop-grace", "100ms", OCEAN_DB=db, OCEAN_CLOGS=CLOGS) as server:
        url = next_json(server)["url"]
        request = urllib.request.Request(f"{url}/v1/runs/r/events", headers={"Accept": "text/event-stream"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as stream:
            until_begun(ocean, db)
            code, err = ended(server, signal.SIGTERM)
            assert b"begun" in stream.read()
    assert code == 0
    assert_line(err, signal.SIGTERM, grace="0.1 s")
    assert_free(ocean, db)


def test_a_client_that_never_sends_its_body_does_not_hold_up_a_stop(ocean: Shell) -> None:
    with started(ocean, *POKED, "--stop-grace", "100ms", OCEAN_CLOGS=CLOGS) as server:
        connection = HTTPConnection(next_json(server)["url"].removeprefix("http://"), timeout=PATIENCE_S)
        with closing(connection):
            connection.putrequest("POST", "/v1/runs")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", "100")
            connection.endheaders(b"{")
            assert ended(server, signal.SIGTERM) == (0, "")


@pytest.mark.parametrize(
    ("number", "finishes", "code"),
    [
        (signal.SIGTERM, True, 0),
        (signal.SIGINT, True, 130),
        (signal.SIGINT, False, 130),
    ],
)
def test_an_interrupted_advance(number: signal.Signals, finishes: bool, code: int, ocean: Shell, db: str) -> None:
    ocean.json("create", "gated", "--run-id", "r", "--input", "{}", OCEAN_DB=db, OCEAN_CLOGS=CLOGS)
    with started(ocean, "advance", "--until-idle", OCEAN_DB=db, OCEAN_CLOGS=CLOGS) as advance:
        until_begun(ocean, db)
        advance.send_signal(number)
        assert_line(read_line(advance), number)
        if finishes:
            (ocean.folder / "gate").touch()
        else:
            advance.send_signal(number)
        out, err = advance.communicate(timeout=PATIENCE_S)
    assert (advance.returncode, err) == (code, "")
    if finishes:
        assert run_of(ocean, db)["output"] == "finished"
        assert out.startswith("1 tick: 1 done")
    else:
        assert_free(ocean, db)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_command_that_waits_for_a_handler_in_a_thread(
    number: signal.Signals, code: int, ocean: Shell
) -> None:
    options = ("create", "threaded", "--run-id", "r", "--input", "{}", "--wait", "60s")
    with started(ocean, *options, OCEAN_CLOGS=CLOGS) as create:
        until_begun(ocean, "sqlite:///ocean.db")
        create.send_signal(number)
        assert_line(read_line(create), number, "threaded")
        create.send_signal(signal.SIGINT)
        _, err = create.communicate(timeout=PATIENCE_S)
    assert err == ""
    assert create.returncode in (code, 130)
    assert_free(ocean, "sqlite:///ocean.db")
