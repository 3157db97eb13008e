"""Commands as processes: a server that stops cleanly, a log that is followed, Ctrl-C, a closed pipe."""

import json
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import Any

import pytest

from ocean import Event, StoreBusy
from ocean.cli.commands.tail import follow_database
from tests.cli.kit import PATIENCE_S, ROOT, SHOP, Shell

pytestmark = pytest.mark.xdist_group("processes")


@contextmanager
def started(ocean: Shell, *args: object, **environ: str) -> "Iterator[subprocess.Popen[str]]":
    process = ocean.start(*args, **environ)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def next_json(process: "subprocess.Popen[str]") -> Any:
    """The next line that it prints, as JSON."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE_S)[0], "it prints nothing"
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    return json.loads(line)


def ended(process: "subprocess.Popen[str]", number: int) -> tuple[int, str]:
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, err


def test_a_server_ticks_responds_and_stops_cleanly_on_sigterm(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--json") as server:
        result = next_json(server)
        assert result["ticker"] is True
        assert result["clogs"] == ["shop", "porter"]
        # Another process's commit: the server's ticker sees it and does the work.
        run_id = ocean.create()
        assert [json.loads(line)["type"] for line in ocean("tail", run_id, "--json").out.splitlines()][-1] == "run.done"
        claim = json.dumps({"clogId": "porter", "workerId": "w"}).encode()
        request = urllib.request.Request(
            f"{result['url']}/v1/leases", claim, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert json.load(answer) == {"leases": []}
        assert ended(server, signal.SIGTERM) == (0, "")


def test_a_server_runs_on_uvloop(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--json") as server:
        next_json(server)
        run_id = ocean.create("say")
        ocean("tail", run_id)
        assert ocean.json("show", run_id)["run"]["output"] == "uvloop"
        assert ended(server, signal.SIGTERM) == (0, "")


def send_request(url: str, path: str, body: Any) -> HTTPConnection:
    """Send a request without reading the response."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection


def test_a_server_that_stops_responds_to_waiting_requests(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--json") as server:
        url = next_json(server)["url"]
        claim = {"clogId": "porter", "workerId": "w", "queues": ["other"], "waitMs": 60_000}
        job = {"sessionId": "s", "clogId": "porter", "input": {}, "runId": "job"}
        waiting = [send_request(url, "/v1/leases", claim), send_request(url, "/v1/runs?waitMs=60000", job)]
        until_event(ocean, "run.created")
        assert ended(server, signal.SIGTERM) == (0, "")
        responses = [connection.getresponse() for connection in waiting]
        assert [answer.status for answer in responses] == [200, 202]
        leases, run = (json.load(answer) for answer in responses)
        assert (leases, run["runId"], run["status"]) == ({"leases": []}, "job", "pending")
        for connection in waiting:
            connection.close()


def is_listening(port: int) -> bool:
    with closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def until_event(ocean: Shell, kind: str) -> None:
    """Wait until a run has streamed that event."""
    with started(ocean, "tail", "--after", 0, "--type", kind, "--json") as tail:
        next_json(tail)


def ended_at_last(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Send SIGTERM repeatedly until the process has ended."""
    while True:
        process.send_signal(signal.SIGTERM)
        try:
            _, err = process.communicate(timeout=0.01)
        except subprocess.TimeoutExpired:
            continue
        return process.returncode, err


def test_a_second_sigterm_does_not_kill_what_the_first_one_waits_for(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--json") as server:
        port = int(next_json(server)["url"].rsplit(":", 1)[1])
        ocean.json("create", "shop", "--run-id", "toil", "--input", json.dumps({"do": "toil", "s": 1}))
        until_event(ocean, "toiling")
        server.send_signal(signal.SIGTERM)
        while is_listening(port):
            pass
        code, err = ended_at_last(server)
        assert (code, err.count("\n")) == (0, 1)
        assert err.startswith("stopping: waiting for 1 tick (shop toil tick 1) for at most 8 s; press Ctrl-C to stop")
    assert ocean.json("show", "toil")["run"]["status"] == "done"


def test_a_server_logs_requests_and_ticks_as_json_and_traces_if_requested(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--json", "--log", "json", OCEAN_OTEL="1") as server:
        url = next_json(server)["url"]
        with urllib.request.urlopen(f"{url}/readyz", timeout=PATIENCE_S):
            pass
        run_id = ocean.create()
        ocean("tail", run_id)
        code, err = ended(server, signal.SIGTERM)
    lines = [json.loads(line) for line in err.splitlines()]
    assert code == 0
    assert {(line["logger"], line.get("route"), line.get("outcome")) for line in lines} == {
        ("ocean.http", "/readyz", None),
        ("ocean.tick", None, "done"),
    }


def test_an_unknown_log_kind_is_refused(ocean: Shell) -> None:
    refused = ocean("serve", "--port", 0, "--log", "xml")
    assert (refused.code, "--log must be text, json or off" in refused.err) == (2, True)


def test_a_server_without_a_ticker_only_listens(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--no-ticker", "--json") as server:
        assert next_json(server)["ticker"] is False
        assert ended(server, signal.SIGINT) == (130, "")


def test_a_port_in_use_is_reported(ocean: Shell) -> None:
    with started(ocean, "serve", "--port", 0, "--json") as server:
        port = next_json(server)["url"].rsplit(":", 1)[1]
        refused = ocean("serve", "--port", port)
        assert (refused.code, f"port {port}: Address already in use" in refused.err) == (1, True)


def test_new_events_are_followed_past_a_busy_writer_until_ctrl_c(ocean: Shell) -> None:
    ocean("migrate")
    with closing(sqlite3.connect(ocean.folder / "ocean.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with started(ocean, "tail", "--after", 0, "--json", OCEAN_CLOGS="") as tail:
            # It opens and follows although another connection holds the write lock.
            writer.execute("INSERT INTO events (seq, ts, type, payload) VALUES (1, 1, 'told', '{}')")
            writer.execute("COMMIT")
            assert next_json(tail)["type"] == "told"
            run_id = ocean.create()
            assert (next_json(tail)["runId"], ended(tail, signal.SIGINT)) == (run_id, (130, ""))


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(ocean: Shell) -> None:
    ocean.create()
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "ocean", "ps"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ocean.folder, env=environ, stdout=write, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_output_that_cannot_be_written_is_one_line_and_never_a_traceback(ocean: Shell) -> None:
    ocean.create()
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": ""}
    for extra in ([], ["--json"]):
        command = [sys.executable, "-W", "error", "-m", "ocean", "ps", *extra]
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                command,
                cwd=ocean.folder,
                env=environ,
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=PATIENCE_S,
                check=False,
            )
        assert done.returncode == 1
        assert b"No space left on device" in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_a_full_disk_is_one_line_and_exit_four(ocean: Shell) -> None:
    ocean.json("ps")
    (ocean.folder / "large.json").write_text(json.dumps("x" * 900_000))
    command = f"ulimit -f 600; exec {sys.executable} -W error -m ocean create shop --input @large.json"
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": SHOP}
    end = subprocess.run(["sh", "-c", command], cwd=ocean.folder, env=environ, capture_output=True, check=False)
    assert (end.returncode, end.stdout) == (4, b"")
    assert end.stderr.startswith(b"ocean: the database cannot be written: ")
    assert end.stderr.count(b"\n") == 1
    assert ocean.json("ps")["runs"] == []


def test_a_command_works_with_closed_streams(ocean: Shell) -> None:
    command = f'{sys.executable} -W error -m ocean create shop --run-id "$0"'
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": SHOP}
    for run_id, closed, code in (("a", ">&- 2>&-", 0), ("b", ">&-", 0), ("c", "2>&-", 0), ("d", "--input - <&-", 2)):
        shell = ["sh", "-c", f"{command} {closed}", run_id]
        done = subprocess.run(
            shell, cwd=ocean.folder, env=environ, capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
    assert sorted(run["runId"] for run in ocean.json("ps")["runs"]) == ["a", "b", "c"]
    assert done.stderr == b"ocean: --input: cannot read standard input: it is closed\n"


def test_a_new_clog_passes_its_own_test_and_runs(ocean: Shell) -> None:
    ocean("new", "clog", "mailer")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "mailer"]
    done = subprocess.run(
        command,
        cwd=ocean.folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    checks = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "E,F,B,UP",
        "--line-length",
        "120",
        "mailer",
    ]
    assert subprocess.run(checks, cwd=ocean.folder, capture_output=True, check=False).returncode == 0
    with started(
        ocean, "create", "mailer", "--input", "{}", "--json", "--clogs", "mailer:mailer", OCEAN_CLOGS=""
    ) as made:
        assert next_json(made)["clogId"] == "mailer"


class Moody:
    """A feed that is busy in the middle, as a database held by another process is."""

    def __init__(self, busy_after: int | None) -> None:
        self.busy_after = busy_after

    async def __aenter__(self) -> "Moody":
        if self.busy_after is None:
            raise StoreBusy("held by another process")
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def last_cursor(self) -> int:
        return 2

    async def follow(self, run_id: str | None, *, after: int, **narrowed: Any) -> Any:
        for seq in range(after + 1, 8):
            if seq > (self.busy_after or 0):
                raise StoreBusy("held by another process")
            yield Event(seq=seq, ts=0, type="t", payload=None)


@pytest.mark.anyio
async def test_a_busy_database_is_followed_again_without_gaps_or_repeats() -> None:
    moods = iter([Moody(None), Moody(4), Moody(None), Moody(4), Moody(7)])
    seqs: list[int] = []
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    await follow_database(lambda: next(moods), None, None, {}, lambda event: seqs.append(event.seq), pause)
    assert seqs == [3, 4, 5, 6, 7]
    assert pauses == [0.2, 0.2, 0.4, 0.8]
