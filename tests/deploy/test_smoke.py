"""The smoke test itself: it fails, with the reason, for every wrong response."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kit import OCEAN, served, smoke

pytestmark = pytest.mark.xdist_group("processes")

HURRY = ("--patience", "0")
RUN = "/v1/runs"
LOG = [(1, "run.created"), (4, "counted"), (5, "run.done")]
PAGE = json.dumps({"events": [{"seq": seq, "type": kind} for seq, kind in LOG]})
STREAM = "".join(f"id: {seq}\nevent: {kind}\ndata: {{}}\n\n" for seq, kind in LOG)
WELL: dict[str, tuple[int, str, str]] = {
    "health": (200, "application/json", '{"status": "ok"}'),
    "create": (200, "application/json", '{"status": "done"}'),
    "page": (200, "application/json", PAGE),
    "stream": (200, "text/event-stream", STREAM),
    "resumed": (200, "text/event-stream", STREAM[STREAM.index("id: 4") :]),
}


class Actor(BaseHTTPRequestHandler):
    """A server that sends the scripted responses of an Ocean."""

    script: dict[str, tuple[int, str, str]]
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.play("health")
        elif self.headers["Accept"] != "text/event-stream":
            self.play("page")
        else:
            self.play("stream" if self.headers["Last-Event-ID"] is None else "resumed")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.play("create")

    def play(self, scene: str) -> None:
        self.seen.append({"scene": scene, **{name.lower(): value for name, value in self.headers.items()}})
        status, kind, body = self.script[scene]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        return None


@contextmanager
def acted(**changed: tuple[int, str, str]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []
    actor = type("Actor", (Actor,), {"script": WELL | changed, "seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), actor) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_a_correct_server_passes_and_gets_the_key_with_every_request() -> None:
    with acted() as (url, seen):
        assert smoke(url, "counter", OCEAN_KEY="k.secret")[0] == 0
    assert [request["scene"] for request in seen] == ["health", "create", "page", "stream", "resumed"]
    assert {request["authorization"] for request in seen} == {"Bearer k.secret"}
    assert seen[-1]["last-event-id"] == "1"


def test_without_a_key_none_is_sent() -> None:
    with acted() as (url, seen):
        assert smoke(url, "counter")[0] == 0
    assert [request for request in seen if "authorization" in request] == []


JSON = "application/json"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"health": (200, "text/html", "<h1>Welcome</h1>")}, "GET /healthz: the response is not from Ocean"),
        ({"health": (200, JSON, '{"status": "ill"}')}, "must report the status ok, got"),
        ({"health": (302, JSON, "")}, "GET /healthz is refused with 302"),
        ({"health": (503, JSON, "starting")}, "GET /healthz is refused with 503: starting"),
        (
            {"create": (401, JSON, '{"error": {"message": "no key"}}')},
            "is refused with 401: no key; set OCEAN_KEY to a key with the scopes read and signal",
        ),
        ({"create": (500, JSON, "oops")}, "is refused with 500: oops"),
        ({"create": (202, JSON, '{"status": "pending"}')}, "is still pending after 0 s"),
        ({"create": (200, JSON, '{"status": "failed", "error": "no tea"}')}, "of counter failed: no tea"),
        ({"create": (200, JSON, '{"status": "waiting"}')}, "is waiting, not done"),
        ({"page": (200, JSON, '{"events": []}')}, "must return events from run.created to run.done, got []"),
        ({"page": (200, JSON, '{"events": [3]}')}, "the response is not from Ocean: TypeError"),
        (
            {"stream": (200, JSON, "{}")},
            "must return text/event-stream when the request accepts it, got application/json",
        ),
        ({"stream": (200, "text/event-stream", STREAM.replace("5", "6"))}, "after None must be"),
        ({"stream": (200, "text/event-stream", STREAM[:60])}, "after None must be"),
        ({"resumed": (200, "text/event-stream", STREAM)}, "after 1 must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_server_with_one_wrong_response_fails(changed: dict[str, tuple[int, str, str]], reason: str) -> None:
    with acted(**changed) as (url, _):
        code, _, complained = smoke(url, "counter", *HURRY)
    assert (code, complained.startswith("smoke: "), complained.count("\n")) == (1, True, 1)
    assert reason in complained


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1", "got no response: ConnectionRefusedError"),
        ("127.0.0.1:8080", "must be a base URL such as"),
        ("http://127.0.0.1:port", "is not a base URL"),
    ],
)
def test_an_unreachable_server_is_reported_in_one_line(url: str, reason: str) -> None:
    code, details, complained = smoke(url, "counter", *HURRY)
    assert (code, details, complained.startswith("smoke: "), complained.count("\n")) == (1, "", True, 1)
    assert reason in complained


@pytest.mark.parametrize(
    ("clog", "given", "reason"),
    [
        ("shop", '{"do": "fail"}', "of shop failed: {'code'"),
        ("shop", '{"do": "wait"}', "is waiting, not done: name a clog whose runs end by themselves"),
        ("shoop", "{}", "did you mean 'shop'?"),
    ],
)
def test_a_server_with_another_clog_fails(tmp_path: Path, clog: str, given: str, reason: str) -> None:
    details = {"OCEAN_DB": f"sqlite:///{tmp_path}/ocean.db", "OCEAN_CLOGS": "tests.cli.shop:both"}
    with served((*OCEAN, "serve"), tmp_path, details) as url:
        code, _, complained = smoke(url, clog, "--input", given)
    assert (code, complained.count("\n")) == (1, 1)
    assert reason in complained


def test_an_input_that_is_not_json_is_wrong_usage() -> None:
    code, details, complained = smoke("http://127.0.0.1:1", "counter", "--input", "{")
    assert (code, details, "--input must be JSON" in complained) == (2, "", True)
