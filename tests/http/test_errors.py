"""Errors: every invalid body names its field, and every error has the same envelope."""

import logging
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import ocean.public
from ocean import (
    BulkStopped,
    CallRefused,
    ChildFailed,
    OceanError,
    RunFailed,
    SignalTimeout,
    StepFailed,
    ToolFailed,
)
from ocean.http.framework.middleware import EXCEPTION_HANDLERS, LONGEST_PATH, RequestMiddleware
from ocean.http.handlers.leases import COMPLETION_BYTES
from ocean.state.values import MAX_BYTES
from tests.http.kit import CLAIM, AppWorld, error_of
from tests.lifecycle.acting import dump

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
ERRORS = sorted(
    {each for each in vars(ocean.public).values() if isinstance(each, type) and issubclass(each, OceanError)},
    key=lambda each: each.__name__,
)
DONE = {"type": "done"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"clogId": "x"}, "workerId"),
        (CLAIM | {"worker_id": "w"}, "worker_id"),
        (CLAIM | {"leasems": 1_000}, "leasems"),
        (CLAIM | {"leaseMs": "1000"}, "leaseMs"),
        (CLAIM | {"leaseMs": 1000.5}, "leaseMs"),
        (CLAIM | {"leaseMs": True}, "leaseMs"),
        (CLAIM | {"leaseMs": 9}, "leaseMs"),
        (CLAIM | {"leaseMs": 86_400_001}, "leaseMs"),
        (CLAIM | {"waitMs": -1}, "waitMs"),
        (CLAIM | {"waitMs": 60_001}, "waitMs"),
        (CLAIM | {"limit": 0}, "limit"),
        (CLAIM | {"limit": 1_001}, "limit"),
        (CLAIM | {"queues": "default"}, "queues"),
        (CLAIM | {"queues": []}, "queues"),
        (CLAIM | {"queues": ["a", 1]}, "queues.1"),
        (CLAIM | {"clogId": None}, "clogId"),
        (CLAIM | {"clogId": 7}, "clogId"),
    ],
    ids=str,
)
async def test_a_wrong_claim_names_its_field(h: AppWorld, body: Any, field: str) -> None:
    await h.new_external_run({})
    before = await dump(h.w)
    error = error_of(await h.post("/v1/leases", body))
    assert (error["code"], error["httpStatus"], error["retryable"]) == ("invalid_body", 400, False)
    assert [each["field"] for each in error["details"]["fields"]] == [field]
    assert error["message"].startswith(f"{field}: ")
    assert await dump(h.w) == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "outcome"),
        ({"outcome": None}, "outcome"),
        ({"outcome": "done"}, "outcome"),
        ({"outcome": {}}, "outcome"),
        ({"outcome": {"type": "finished"}}, "outcome"),
        ({"outcome": {"type": "done", "out": 1}}, "outcome.out"),
        ({"outcome": {"type": "ok", "output": 1}}, "outcome.output"),
        ({"outcome": {"type": "wait"}}, "outcome"),
        ({"outcome": {"type": "wait", "until": 1, "forMs": 1}}, "outcome"),
        ({"outcome": {"type": "wait", "forMs": "1"}}, "outcome.forMs"),
        ({"outcome": {"type": "wait", "for_ms": 1}}, "outcome.for_ms"),
        ({"outcome": {"type": "retry"}}, "outcome.error"),
        ({"outcome": {"type": "retry", "error": 7}}, "outcome.error"),
        ({"outcome": {"type": "failed", "error": {"code": "c"}}}, "outcome.error.message"),
        ({"outcome": {"type": "failed", "error": {"code": "c", "message": "m", "x": 1}}}, "outcome.error.x"),
        ({"outcome": DONE, "events": {"type": "a"}}, "events"),
        ({"outcome": DONE, "events": [["a", 1]]}, "events.0"),
        ({"outcome": DONE, "events": [{"type": "a"}, {"payload": 1}]}, "events.1.type"),
        ({"outcome": DONE, "rowVersion": -1}, "rowVersion"),
        ({"outcome": DONE, "clearRow": "yes"}, "clearRow"),
        ({"outcome": DONE, "surprise": 1}, "surprise"),
    ],
    ids=str,
)
async def test_a_wrong_completion_names_its_field_and_leaves_the_lease(h: AppWorld, body: Any, field: str) -> None:
    lease = await h.new_lease({})
    error = error_of(await h.post(f"/v1/leases/{lease['leaseId']}/complete", body))
    assert (error["code"], error["httpStatus"]) == ("invalid_body", 400)
    named = [each["field"] for each in error["details"]["fields"]]
    assert named[0] == field if field == "outcome.for_ms" else named == [field]
    assert (await h.complete(lease, DONE)).status_code == 200


async def test_a_row_cannot_be_both_written_and_cleared(h: AppWorld) -> None:
    lease = await h.new_lease({})
    error = error_of(await h.complete(lease, DONE, row=None, clearRow=True))
    assert error["message"] == "row and clearRow must not be given together: one writes the row, the other removes it"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"events": [{"type": "run.done"}]}, "event type 'run.done' must not be one of the kernel's"),
        ({"events": [{"type": ""}]}, "an event's type must be a non-empty string"),
        ({"row": {"a": [0, "\x00"]}}, "row.a[1] must not contain a NUL character"),
        ({"row": 2**63}, "row must be an integer of at most 64 bits"),
        ({"row": "x" * MAX_BYTES}, "row must be at most 1048576 bytes of JSON, got 1048578"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_value_that_cannot_be_stored_is_refused_with_its_location(h: AppWorld, more: Any, message: str) -> None:
    lease = await h.new_lease({})
    response = await h.complete(lease, DONE, **more)
    error = error_of(response)
    assert (error["code"], error["httpStatus"]) == ("invalid_value", 400)
    assert error["message"].startswith(message)
    assert (await h.complete(lease, DONE)).status_code == 200


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"", "not_json", "the body must be JSON"),
        (b"{", "not_json", "the body must be JSON"),
        (b"\xff", "not_json", "the body must be JSON"),
        (b'{"clogId": "x"} {}', "not_json", "the body must be JSON"),
        (b'{"clogId": "x", "clogId": "y"}', "not_json", "the body must be JSON: an object has 'clogId' twice"),
        (b'{"leaseMs": NaN}', "not_json", "the body must be JSON: NaN is not a JSON number"),
        (b'{"leaseMs": ' + b"9" * 5_000 + b"}", "not_json", "the body must be JSON"),
        (b"[" * 100_000, "not_json", "the body must be JSON: it is nested too deeply"),
        (b"[]", "invalid_body", "the body must be a JSON object"),
        (b"null", "invalid_body", "the body must be a JSON object"),
        (b'{"leaseMs": 1e999, "clogId": "x", "workerId": "w"}', "invalid_body", "leaseMs: "),
        (rb'{"clogId": "x", "workerId": "\ud800"}', "invalid_value", "worker_id must not contain a lone surrogate"),
        (rb'{"clogId": "x", "workerId": "w", "\ud800": 1}', "invalid_body", "Input should be a valid string"),
        (rb'{"clogId": "x", "workerId": "\u0000"}', "invalid_value", "worker_id must not contain a NUL"),
        (b'{"clogId": "x", "workerId": ""}', "invalid_value", "worker_id must be a non-empty string"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_malformed_body_is_refused_with_a_reason(h: AppWorld, body: bytes, code: str, message: str) -> None:
    response = await h.http.post("/v1/leases", content=body, headers=JSON)
    error = error_of(response)
    assert (error["code"], error["httpStatus"]) == (code, 400)
    assert error["message"].startswith(message)
    assert len(response.content) < 2_000


async def test_a_long_unknown_name_is_shortened_in_the_error(h: AppWorld) -> None:
    response = await h.post("/v1/leases", CLAIM | {f"{n}{'x' * 10_000}": 1 for n in range(50)})
    assert len(response.content) < 6_000
    assert error_of(response)["message"].endswith("(and 49 more)")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
async def test_a_body_of_another_content_type_is_refused(h: AppWorld, kind: str) -> None:
    response = await h.http.post("/v1/leases", content=b"{}", headers={"content-type": kind})
    assert (response.status_code, error_of(response)["code"]) == (415, "wrong_content_type")


async def test_the_character_set_may_be_named(h: AppWorld) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    response = await h.http.post("/v1/leases", content=b'{"clogId": "x", "workerId": "w"}', headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(("path", "most"), [("/v1/leases", MAX_BYTES), ("/v1/leases/l/complete", COMPLETION_BYTES)])
async def test_the_body_limit_is_checked_while_the_body_arrives(h: AppWorld, path: str, most: int) -> None:
    for size, status in ((most, 400), (most + 1, 413)):
        response = await h.http.post(path, content=b" " * size, headers=JSON)
        assert response.status_code == status
    error = error_of(response)
    assert (error["code"], error["details"]) == ("body_too_large", {"mostBytes": most})
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v1/leases", "/v1/leases/l/renew", "/v1/leases/l/complete"])
async def test_a_wrong_method_gets_the_allowed_methods(h: AppWorld, method: str, path: str) -> None:
    response = await h.http.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert error_of(response)["code"] == "method_not_allowed"
    assert "Allow" in error_of(response)["message"]


@pytest.mark.parametrize("path", ["/", "/v1/leases/", "/v1/leases/l", "/v1/leases/a/b/renew"])
async def test_an_unknown_path_is_not_found(h: AppWorld, path: str) -> None:
    response = await h.post(path)
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    assert "GET /docs" in error_of(response)["message"]


@pytest.mark.parametrize("part", ["a", "%41", "/", "é"])
async def test_a_path_that_is_too_long_is_refused_before_parsing(h: AppWorld, part: str) -> None:
    response = await h.get("/v1/runs/" + part * LONGEST_PATH)
    assert response.status_code == 414
    assert (error_of(response)["code"], error_of(response)["details"]) == ("path_too_long", {"mostBytes": LONGEST_PATH})
    longest = "/v1/keys/" + "%41" * 1362
    assert len(longest) == LONGEST_PATH - 1
    assert (await h.get(longest)).status_code == 400
    assert (await h.get(longest + "A")).status_code == 400
    assert (await h.get(longest + "AA")).status_code == 414


async def test_a_server_without_raw_paths_has_the_same_limit(h: AppWorld) -> None:
    app = h.http._transport.app  # type: ignore[attr-defined]

    async def without_raw_path(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "raw_path": None}, receive, send)

    transport = httpx2.ASGITransport(without_raw_path)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get("/v1/runs/" + "a" * LONGEST_PATH)).status_code == 414


async def test_an_invalid_lease_id_is_lost_or_refused(h: AppWorld) -> None:
    for lease_id, status, code in (("none", 409, "lease_lost"), ("l" * 257, 400, "invalid_value")):
        response = await h.post(f"/v1/leases/{lease_id}/renew")
        assert (response.status_code, error_of(response)["code"]) == (status, code)
        assert lease_id not in response.text


@pytest.mark.parametrize("given", ["abc-1", "A.b_c~:9", "x" * 128])
async def test_a_valid_request_id_is_kept(h: AppWorld, given: str) -> None:
    responses = [await h.post("/v1/leases", body, headers={"x-request-id": given}) for body in (CLAIM, {})]
    assert [response.headers["x-request-id"] for response in responses] == [given, given]
    assert error_of(responses[1])["requestId"] == given


@pytest.mark.parametrize("given", ["", "a b", "a\tb", "x" * 129, '"', "<b>"])
async def test_a_request_without_a_valid_id_gets_one(h: AppWorld, given: str) -> None:
    generated = [
        (await h.post("/v1/leases", {}, headers={"x-request-id": given})).headers["x-request-id"] for _ in "ab"
    ]
    assert given not in generated
    assert len({*generated}) == 2
    assert {len(each) for each in generated} == {36}


async def response_to(error: Exception) -> httpx2.Response:
    async def fail(request: Request) -> Response:
        raise error

    app = Starlette(
        routes=[Route("/secret-path", fail)],
        exception_handlers=EXCEPTION_HANDLERS,
        middleware=[Middleware(RequestMiddleware)],
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
        return await http.get("/secret-path")


REASON = {"code": "c", "message": "no", "details": None}
SPECIAL: dict[type[OceanError], Callable[[], OceanError]] = {
    CallRefused: lambda: CallRefused("no", "own_code", 418, {"own_key": 1}),
    BulkStopped: lambda: BulkStopped("stopped", None, ValueError()),
    RunFailed: lambda: RunFailed("failed", {}, some_key=1),
    ToolFailed: lambda: ToolFailed("no", tool="t", details={"some_key": 1}),
    StepFailed: lambda: StepFailed("pay", 3, REASON),
    ChildFailed: lambda: ChildFailed("run-1", REASON),
    SignalTimeout: lambda: SignalTimeout("paid", 1_000),
}
DETAILS: dict[type[OceanError], dict[str, Any]] = {
    CallRefused: {"own_key": 1},
    ToolFailed: {"someKey": 1, "tool": "t"},
    StepFailed: {"step": "pay", "attempts": 3, "error": REASON},
    ChildFailed: {"runId": "run-1", "error": REASON},
    SignalTimeout: {"signal": "paid", "timeoutMs": 1_000},
}


def make_error(kind: type[OceanError]) -> OceanError:
    return SPECIAL[kind]() if kind in SPECIAL else kind("no", some_key=1)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
async def test_every_error_of_ocean_has_its_envelope(kind: type[OceanError]) -> None:
    error = make_error(kind)
    response = await response_to(error)
    envelope = error_of(response)
    assert (envelope["code"], envelope["message"]) == (error.code, error.message)
    assert (response.status_code, envelope["retryable"]) == (error.http_status, error.retryable)
    assert ("retry-after" in response.headers) == (error.http_status == 503 and error.retryable)
    if kind is not BulkStopped:
        assert envelope["details"] == DETAILS.get(kind, {"someKey": 1})


async def test_there_are_errors_to_test() -> None:
    assert len(ERRORS) > 20


async def test_retry_after_is_sent_in_seconds() -> None:
    response = await response_to(ocean.StoreBusy("busy", retry_after_ms=1_001))
    assert response.headers["retry-after"] == "2"
    assert (await response_to(ocean.StoreBusy("busy"))).headers["retry-after"] == "1"


async def test_a_long_message_is_cut_off() -> None:
    assert error_of(await response_to(ocean.InvalidValue("x" * 5_000)))["message"] == "x" * 1_000


async def test_an_unexpected_error_is_logged_and_not_revealed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ocean.http"):
        response = await response_to(ValueError("the inner secret"))
    error = error_of(response)
    assert (response.status_code, error["code"], error["retryable"]) == (500, "internal", False)
    assert "secret" not in response.text
    (record,) = caplog.records
    assert error["requestId"] in record.getMessage()
    assert "the inner secret" in caplog.text
    assert "secret-path" not in record.getMessage()
