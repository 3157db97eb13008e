"""How `ocean serve` uses its environment: the address, the port, and systemd."""

import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.cli.kit import PATIENCE_S, Shell, free_port
from tests.cli.test_processes import ended, next_json, started

pytestmark = pytest.mark.xdist_group("processes")


def test_the_environment_decides_where_to_listen(ocean: Shell) -> None:
    port = str(free_port())
    with started(ocean, "serve", "--json", OCEAN_HOST="localhost", PORT=port) as server:
        assert next_json(server)["url"] == f"http://127.0.0.1:{port}"
        assert ended(server, signal.SIGTERM) == (0, "")


def test_flags_override_the_environment(ocean: Shell) -> None:
    with started(ocean, "serve", "--host", "::1", "--port", 0, "--json", OCEAN_HOST="127.0.0.1", PORT="1") as server:
        assert next_json(server)["url"].startswith("http://[::1]:")


@pytest.mark.parametrize(
    ("environ", "result"),
    [
        ({"PORT": "tcp://10.0.0.1:80"}, "env var: 'PORT'"),
        ({"PORT": "65536"}, "env var: 'PORT'"),
        ({"OCEAN_HOST": "0.0.0.0"}, "got 0.0.0.0"),
    ],
    ids=lambda value: str(value),
)
def test_a_wrong_address_in_the_environment_is_refused_by_its_name(
    ocean: Shell, environ: dict[str, str], result: str
) -> None:
    refused = ocean("serve", **environ)
    assert (refused.code, result in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(("poke", "status"), [("0s", "pending"), ("500ms", "done")])
def test_work_after_a_response_is_done_before_the_server_ends_or_not_at_all(
    ocean: Shell, poke: str, status: str
) -> None:
    body = json.dumps({"runId": "r", "sessionId": "s", "clogId": "shop", "input": {"do": "done"}}).encode()
    with started(ocean, "serve", "--port", 0, "--no-ticker", "--poke", poke, "--json") as server:
        request = urllib.request.Request(
            f"{next_json(server)['url']}/v1/runs", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.status == 201
        assert ended(server, signal.SIGTERM) == (0, "")
    assert [run["status"] for run in ocean.json("ps")["runs"]] == [status]


@pytest.mark.parametrize("is_abstract", [False, True], ids=["a file", "abstract"])
def test_systemd_is_notified_when_the_server_listens(ocean: Shell, tmp_path: Path, is_abstract: bool) -> None:
    address = f"@{tmp_path}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waiting:
        waiting.bind(address.replace("@", "\0"))
        waiting.settimeout(PATIENCE_S)
        with started(ocean, "serve", "--port", 0, "--json", NOTIFY_SOCKET=address) as server:
            assert waiting.recv(100) == b"READY=1"
            with urllib.request.urlopen(f"{next_json(server)['url']}/healthz", timeout=PATIENCE_S) as answer:
                assert json.load(answer) == {"status": "ok"}


def test_a_server_serves_although_systemd_is_gone(ocean: Shell, tmp_path: Path) -> None:
    with started(ocean, "serve", "--port", 0, "--json", NOTIFY_SOCKET=str(tmp_path / "gone")) as server:
        next_json(server)
        code, complained = ended(server, signal.SIGTERM)
    assert (code, "cannot notify systemd that the server is ready" in complained) == (0, True)
