"""Logging: a line for each request and tick, as text or JSON, without any value that users stored."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ocean import Abort, CallRefused, Clog, Done, Failed, Incoming, Outcome, Refuse, Retry, Tick
from ocean.config import BadSettings
from ocean.kernel.tick_log import fields
from ocean.logs import JsonLines, LogKind, TextLines, log_kind, log_to
from ocean.state.records import GENERIC_VERBS
from tests.http.kit import app_world

pytestmark = pytest.mark.anyio

CANARY = "canary-8d1f"
SECRET = f"no such card, token={CANARY}"
Logged = Callable[[LogKind], io.StringIO]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Return a function that starts logging and returns the output."""
    stops = []

    def begin(kind: LogKind) -> io.StringIO:
        stream = io.StringIO()
        stops.append(log_to(stream, kind))
        return stream

    yield begin
    for stop in stops:
        stop()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_a_request_and_its_tick_have_a_line_each(logged: Logged) -> None:
    stream = logged("json")
    async with app_world(poke_ms=100) as h:
        body = {"sessionId": "s", "clogId": "c", "runId": "r1", "input": {"fail": "never"}}
        await h.post("/v1/runs", body, headers={"x-request-id": "q1"})
    request, tick = lines(stream)
    assert request.pop("at").endswith("Z")
    assert request.pop("ms") >= 0
    assert request == {
        "level": "info",
        "logger": "ocean.http",
        "message": "request",
        "method": "POST",
        "route": "/v1/runs",
        "status": "201",
        "request_id": "q1",
    }
    tick.pop("at")
    assert tick == {
        "level": "error",
        "logger": "ocean.tick",
        "message": "c tick 1 of run r1 failed (attempt 1 of 3): never; the run has failed",
        "run_id": "r1",
        "clog_id": "c",
        "tick": 1,
        "call": 1,
        "outcome": "failed",
        "code": "failed",
        "ms": 0,
        "epoch": 1,
        "reason": "created",
        "source": "request",
        "attempt": 1,
    }


async def test_a_log_line_names_the_actor(logged: Logged) -> None:
    stream = logged("json")
    async with app_world() as h:
        created = await h.w.ocean.create_api_key("ann", ["read"])
        await h.http.get("/v1/runs", headers={"authorization": f"Bearer {created.key}"})
        await h.http.post("/v1/advance", json={}, headers={"authorization": f"Bearer {created.key}"})
        await h.http.get("/v1/runs")
    found = [(line["status"], line.get("actor")) for line in lines(stream)]
    assert found == [("200", "ann"), ("403", "ann"), ("401", None)]
    assert created.key not in stream.getvalue()


async def test_a_text_line_is_short_and_quotes_unusual_values(logged: Logged) -> None:
    stream = logged("text")
    async with app_world() as h:
        await h.new_run({"done": 1}, run_id='a "b"\nc')
        await h.w.drain()
    at, text = stream.getvalue().split(" ", 1)
    assert at.endswith("Z")
    assert text == (
        r'info ocean.tick tick run_id="a \"b\"\nc" clog_id=c tick=1 call=1 outcome=done ms=0 epoch=1 '
        "reason=created source=python\n"
    )


async def test_with_logging_off_only_warnings_remain(logged: Logged) -> None:
    stream = logged("off")
    async with app_world(ready_age_ms=0) as h:
        await h.new_run({"done": 1})
        h.w.clock.advance(1)
        await h.get("/readyz")
        await h.w.drain()
    (line,) = stream.getvalue().splitlines()
    assert "warning ocean.http not_ready in request" in line


async def test_logging_stops_when_closed() -> None:
    stream = io.StringIO()
    before = logging.getLogger("ocean").level, list(logging.getLogger().handlers)
    log_to(stream, "text")()
    logging.getLogger("ocean.http").warning("too late")
    assert stream.getvalue() == ""
    assert (logging.getLogger("ocean").level, logging.getLogger().handlers) == before


def record(message: str, *args: object, name: str = "ocean.x", error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    entry = logging.LogRecord(name, logging.ERROR, "", 0, message, args, info)
    entry.__dict__.update(fields(odd="\x1b[31m\u2028\x00\ud800 é"))
    return entry


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()], ids=["json", "text"])
def test_a_log_line_is_one_line_of_plain_characters(formatter: logging.Formatter) -> None:
    line = formatter.format(record("first\r\nsecond %s \x1b]0;", "\u0085"))
    assert line.isascii()
    assert line.isprintable()
    assert "first" in line
    assert "second" in line


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()], ids=["json", "text"])
def test_an_exception_is_logged_with_type_and_location_without_its_message(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(CANARY)
    except ValueError as error:
        line = formatter.format(record("it failed", error=error))
    assert "ValueError" in line
    assert "test_logs.py:" in line
    assert CANARY not in line


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()], ids=["json", "text"])
def test_letters_that_look_like_others_are_escaped_in_a_message_too(formatter: logging.Formatter) -> None:
    assert "\\u0430dmin" in formatter.format(record("\u0430dmin"))


@pytest.mark.parametrize("value", ["a=b", "a b", 'a"b', "a\\b", ""])
def test_a_value_cannot_look_like_another_field(value: str) -> None:
    entry = record("x")
    entry.__dict__.update(fields(note=value))
    assert TextLines().format(entry).endswith(f" note={json.dumps(value)}")


def test_a_deep_exception_is_logged_with_its_last_locations() -> None:
    def fall(depth: int) -> None:
        if depth:
            fall(depth - 1)
        raise ValueError(CANARY)

    with pytest.raises(ValueError, match=CANARY) as raised:
        fall(40)
    line = json.loads(JsonLines().format(record("x", error=raised.value)))
    assert line["raised"].startswith("fall ")
    assert line["raised"].count(" < ") == 11


def test_the_exception_that_asyncio_shows_below_its_line_is_left_out() -> None:
    line = TextLines().format(
        record(f"Task exception was never retrieved\nfuture: ValueError('{CANARY}')", name="asyncio")
    )
    assert "never retrieved" in line
    assert CANARY not in line


@pytest.mark.parametrize(
    ("flag", "environ", "kind"),
    [
        (None, {}, "text"),
        (None, {"OCEAN_LOG": ""}, "text"),
        (None, {"OCEAN_LOG": "json"}, "json"),
        ("off", {"OCEAN_LOG": "json"}, "off"),
    ],
)
def test_the_log_kind_is_set_by_the_flag_or_the_environment(
    flag: str | None, environ: dict[str, str], kind: str
) -> None:
    assert log_kind(flag, environ) == kind


@pytest.mark.parametrize(
    ("flag", "environ", "source"), [("xml", {}, "--log"), ("", {}, "--log"), (None, {"OCEAN_LOG": "JSON"}, "OCEAN_LOG")]
)
def test_an_unknown_log_kind_is_refused(flag: str | None, environ: dict[str, str], source: str) -> None:
    with pytest.raises(BadSettings, match=f"{source} must be text, json or off"):
        log_kind(flag, environ)


def leaky() -> Clog:
    """A clog that fails in every possible way, with what looks like a secret in the message."""
    clog = Clog("leaky", generic=GENERIC_VERBS)

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        await tick.emit("said", {CANARY: CANARY})
        match tick.input["do"]:
            case "raise":
                raise ValueError(SECRET)
            case "abort":
                raise Abort(SECRET, code=f"not a code {CANARY}", details=CANARY)
            case "retry":
                return Retry({"code": f"{CANARY}\n", "message": SECRET, "details": [CANARY]})
            case "fail":
                return Failed(SECRET)
        return Done({"output": CANARY})

    @clog.method
    async def refuse(tick: Tick, payload: Any) -> None:
        raise Refuse(CANARY, code=f"no code {CANARY}", http_status=503, details=CANARY)

    @clog.method
    async def fail(tick: Tick, payload: Any) -> None:
        raise ValueError(SECRET)

    @clog.route("POST", "/leaky/{what}", access="open", errors=lambda refusal, incoming: [refusal.code])
    async def leak(incoming: Incoming) -> None:
        if incoming.path["what"] == "refuse":
            raise CallRefused(CANARY, f"no code {CANARY}", 503, CANARY)
        raise ValueError(CANARY)

    return clog


@pytest.mark.parametrize("kind", ["text", "json"])
async def test_a_stored_secret_is_in_no_log_line_metric_or_readiness_response(
    kind: LogKind, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    stream = logged(kind)
    async with app_world(poke_ms=100, ready_age_ms=0, more=[leaky()]) as h:
        secret = {"session": CANARY, "x-request-id": f"a b {CANARY}"}
        for do in ("raise", "abort", "retry", "fail", "done"):
            run = {"clogId": "leaky", "sessionId": CANARY, "input": {"do": do, "secret": CANARY}}
            assert (await h.post("/v1/runs", run, headers=secret)).status_code == 201
        run_id = (await h.post("/v1/runs", {"clogId": "leaky", "sessionId": "s"})).json()["runId"]
        for method in ("refuse", "fail"):
            response = await h.post(f"/v1/runs/{run_id}/call/{method}", {"payload": CANARY}, headers=secret)
            assert response.status_code in (500, 503)
        for what in ("refuse", CANARY):
            response = await h.post(f"/leaky/{what}", {"secret": CANARY}, headers=secret)
            assert response.status_code in (500, 503)
        await h.new_external_run({"secret": CANARY})
        (lease,) = await h.claim()
        await h.complete(lease, {"type": "failed", "error": {"code": "x", "message": CANARY}}, row=CANARY)
        await h.get(f"/v1/runs/{CANARY}?{CANARY}={CANARY}")
        for held in ({"authorization": f"Bearer {CANARY}"}, {"cookie": f"ocean_session={CANARY}"}):
            assert (await h.post("/v1/advance", {}, headers=held)).status_code in (401, 403)
        await h.post(f"/{CANARY}", {CANARY: CANARY})
        await h.new_run({"secret": CANARY})
        h.w.clock.advance(1)
        shown = [await h.get("/readyz"), await h.get("/metrics")]
    assert len(stream.getvalue().splitlines()) > 15
    assert stream.getvalue().count("no such card, token=[redacted]") == 5
    for text in (stream.getvalue(), *(each.text for each in shown)):
        assert CANARY not in text
        assert lease["leaseId"] not in text
    assert 'route="/leaky/{what}"' in shown[1].text
