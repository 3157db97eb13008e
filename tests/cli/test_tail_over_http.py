"""`ocean tail --url`: the log of a server, across restarts and broken responses."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocean.cli.commands.remote_log import (
    LONGEST_FRAME,
    BadStream,
    Feed,
    RemoteServer,
    SseFrame,
    SseParser,
    follow_server,
)
from tests.cli import recording
from tests.cli.kit import PATIENCE_S, Shell
from tests.cli.test_cli_document import without_times
from tests.cli.test_processes import next_json, started

pytestmark = pytest.mark.xdist_group("processes")


def test_tail_continues_after_a_restart_of_its_server_as_documented(tmp_path: Path) -> None:
    """The server is really killed; no event is missing or printed twice."""
    (shown,) = recording.RECORDING.findall(recording.DOCUMENT.read_text())
    assert without_times(recording.recorded(tmp_path)).splitlines() == without_times(shown).splitlines()


def test_the_log_of_a_server_is_printed_like_that_of_the_database(ocean: Shell) -> None:
    run_id, sell = "a/b", '{"do": "sell", "what": "tea"}'
    ocean("create", "shop", "--input", sell, "--run-id", run_id, "--session", "s 1")
    ocean("advance")
    ocean("cancel", run_id)
    with started(ocean, "serve", "--port", 0, "--json") as server:
        url = next_json(server)["url"]
        for which in ((run_id,), ("--session", "s 1"), ("--clog", "shop"), ()):
            for more in ((), ("--type", "sold", "--type", "run.failed"), ("--after", "2")):
                args = ("tail", *which, "--no-follow", *more)
                there, here = ocean(*args, "--url", url), ocean(*args)
                assert (there.out, there.err, there.code) == (here.out, "", 0)
                assert ocean(*args, "--json", OCEAN_URL=url).out == ocean(*args, "--json").out != ""
        followed = ocean("tail", run_id, "--url", f"{url}/", "--json")
        assert (followed.code, followed.err) == (0, "")
        assert followed.out == ocean("tail", run_id, "--no-follow", "--json").out
        types = [json.loads(line)["type"] for line in followed.out.splitlines()]
        assert (types[0], "sold" in types, types[-1]) == ("run.created", True, "run.failed")
        missing = ocean("tail", "nobody", "--url", url, "--json")
        assert (missing.code, missing.error["code"], missing.out) == (3, "run_not_found", "")
        assert missing.error["requestId"]
        assert ocean("tail", "--after", 999, "--url", url).code == 2


@dataclass
class Canned:
    """A server that sends prepared responses, one to a connection, and keeps the requests."""

    responses: list[bytes]
    url: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def canned(*responses: bytes) -> Iterator[Canned]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        one = Canned(list(responses), f"http://127.0.0.1:{listening.getsockname()[1]}")

        def serve() -> None:
            for answer in one.responses:
                connection, _ = listening.accept()
                with connection:
                    request = b""
                    while not request.endswith(b"\r\n\r\n"):
                        request += connection.recv(65_536)
                    one.requests.append(request.decode())
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield one
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "not all responses were requested"


def answer(status: int, body: str = "", kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def event(seq: int, type: str = "t", **more: Any) -> str:
    return f"id: {seq}\nevent: {type}\ndata: {json.dumps({'seq': seq, 'ts': 0, 'type': type, 'payload': 1} | more)}\n\n"


def stream(*frames: str, breaks_off: bool = False) -> bytes:
    """Return a chunked response; `breaks_off` leaves out its end, as a killed server does."""
    chunks = "".join(f"{len(frame):x}\r\n{frame}\r\n" for frame in frames)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    end = "" if breaks_off else "0\r\n\r\n"
    return f"{head}{chunks}{end}".encode()


def test_whatever_breaks_events_are_printed_once_and_in_order() -> None:
    text: list[int] = []
    notices: list[tuple[bool, int]] = []
    pauses: list[float] = []
    with canned(
        answer(503, "{}"),
        stream("retry: 1000\nid: 0\n\n", event(1), ": ping\n\n", event(2), breaks_off=True),
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Ty",
        stream(event(2), event(3), event(4)[:20], breaks_off=True),
        stream(event(4)),
        stream(),
        stream(event(9, "run.done")),
        answer(204),
    ) as server:
        follow_server(
            RemoteServer(server.url),
            Feed("/v1/runs/r/events", ("t", "u")),
            0,
            lambda event: text.append(event.seq),
            lambda is_away, after, why: notices.append((is_away, after)),
            pauses.append,
        )
    assert text == [1, 2, 3, 4, 9]
    assert notices == [(True, 0), (False, 0), (True, 2), (False, 2), (True, 3), (False, 3)]
    assert pauses == [0.2, 0.2, 0.4, 0.8, 0.2, 0.2]
    cursors = [request.split("Last-Event-ID: ")[1].split("\r\n")[0] for request in server.requests]
    assert cursors == ["0", "0", "2", "2", "2", "3", "4", "4", "9"]
    assert all(request.startswith("GET /v1/runs/r/events?types=t&types=u HTTP/1.1\r\n") for request in server.requests)


def test_a_server_that_goes_away_after_the_run_s_end_is_not_waited_for(ocean: Shell) -> None:
    with canned(stream(event(1, "run.done")), b"") as server:
        result = ocean("tail", "r", "--url", server.url)
    assert (result.code, result.err) == (0, "")
    assert "run.done" in result.out


def test_the_whole_log_is_printed_from_now_on_unless_a_cursor_is_given(ocean: Shell) -> None:
    latest = answer(200, '{"events": [], "nextCursor": 7}')
    with canned(latest, stream("id: 7\n\n", event(8, "run.done")), answer(403, REFUSED)) as server:
        result = ocean("tail", "--json", OCEAN_URL=server.url)
    assert (result.code, json.loads(result.out)["seq"], result.error["code"]) == (1, 8, "forbidden")
    assert server.requests[0].startswith("GET /v1/events?after=latest&limit=1000 ")
    assert ["Last-Event-ID: 7" in server.requests[1], "Last-Event-ID: 8" in server.requests[2]] == [True, True]
    with canned(answer(403, REFUSED)) as server:
        ocean("tail", "--after", 3, OCEAN_URL=server.url)
    assert "Last-Event-ID: 3" in server.requests[0]


def test_with_json_a_server_that_goes_away_is_reported_in_json(ocean: Shell) -> None:
    with canned(stream(event(1), breaks_off=True), stream(event(2, "run.done")), answer(204)) as server:
        result = ocean("tail", "r", "--json", "--url", server.url)
    assert (result.code, len(result.out.splitlines())) == (0, 2)
    gone, back = (json.loads(line) for line in result.err.splitlines())
    assert (gone["status"], gone["after"], gone["url"]) == ("away", 1, server.url)
    assert (back["status"], back["after"], back["message"]) == (
        "back",
        1,
        f"{server.url} is back; continuing after event 1",
    )


REFUSED = '{"error": {"code": "forbidden", "message": "not with this key", "httpStatus": 403, "details": {}}}'


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (answer(403, REFUSED), 1, "not with this key"),
        (answer(400, REFUSED), 2, "not with this key"),
        (answer(404, REFUSED), 3, "not with this key"),
        (answer(404, "<p>nothing here</p>"), 1, "is not an Ocean server: it responds with status 404"),
        (answer(404, "[]"), 1, "is not an Ocean server: it responds with status 404"),
        (answer(302, ""), 1, "is not an Ocean server: it responds with status 302"),
        (answer(200, "<p>hello</p>", "text/html"), 1, "its response is not a stream"),
        (stream("id: 1\ndata: hello\n\n"), 1, "its stream does not contain events"),
        (stream(event(1, ts="\x1b[2J")), 1, "its stream does not contain events"),
        (stream(event(1).replace("id: 1", "id: 2")), 1, "its stream does not contain events"),
        (stream("data: {}\n\n").replace(b"{}", b"\xff\xff"), 1, "its stream does not contain events"),
        (b"", 4, "does not respond"),
    ],
    ids=range(12),
)
def test_a_response_that_is_no_log_is_reported_and_ends_the_command(
    ocean: Shell, given: bytes, code: int, text: str
) -> None:
    with canned(given) as server:
        result = ocean("tail", "r", "--url", server.url, OCEAN_KEY="ok_secret")
    assert (result.code, result.out) == (code, "")
    assert text in result.err
    assert "Authorization: Bearer ok_secret\r\n" in server.requests[0]
    assert "secret" not in result.err


@pytest.mark.parametrize("page", ["[]", "{}", '{"events": [{}], "nextCursor": 1}', '{"events": [], "nextCursor": "1"}'])
def test_a_response_that_is_no_page_is_reported(ocean: Shell, page: str) -> None:
    with canned(answer(200, page)) as server:
        result = ocean("tail", "--no-follow", "--url", server.url)
    assert (result.code, result.out) == (1, "")
    assert "its response is not a page of events" in result.err


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:y",
        "http://x:99999",
        "http://x y",
        "http://x\r\ny",
        "http://[::1",
    ],
)
def test_an_invalid_address_is_refused(ocean: Shell, url: str) -> None:
    result = ocean("tail", "--url", url)
    assert (result.code, result.out) == (2, "")
    assert "must be the address of a server" in result.err


def test_an_address_with_a_secret_or_an_invalid_key_is_refused_without_printing_it(ocean: Shell) -> None:
    for url, key in (("http://me:secret@x", ""), ("http://x?key=secret", ""), ("http://x", "sec\nret")):
        result = ocean("tail", "--url", url, OCEAN_KEY=key)
        assert (result.code, result.out) == (2, "")
        assert "secret" not in result.err
    assert ocean("tail", "--url", "http://x", "--db", "sqlite:///y.db").code == 2


def frames_of(parts: list[bytes]) -> list[SseFrame]:
    frames = SseParser()
    return [frame for part in parts for frame in frames.feed(part)]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.text(st.characters(exclude_characters="\r\n", codec="utf-8")))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 7),
)
def test_frames_are_the_same_wherever_the_bytes_are_cut(pairs: list[Any], end: str, size: int) -> None:
    text = "".join(f": ping\n\nid: {seq}\nevent: x\ndata: {data}\ndata:{data}\n\n" for seq, data in pairs)
    sent = (text + "data: without an end\n").replace("\n", end).encode()
    frames = frames_of([sent[at : at + size] for at in range(0, len(sent), size)])
    whole = [frame for frame in frames if frame.data is not None]
    twice = [(seq, data, data.removeprefix(" ")) for seq, data in pairs]
    assert whole == [SseFrame(str(seq), f"{data}\n{bare}") for seq, data, bare in twice]


def test_a_frame_without_an_end_is_refused_at_a_limit() -> None:
    with pytest.raises(BadStream, match="must have at most"):
        frames_of([b"x" * 2**20] * (LONGEST_FRAME // 2**20 + 1))
