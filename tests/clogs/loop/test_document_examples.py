"""The examples of the document: their requests are sent unchanged, and the whole response is compared."""

from typing import Any

import pytest

from ocean.testing.requests import WorldResponse
from tests.clogs.loop.kit import town

pytestmark = pytest.mark.anyio

HEADERS = {"x-afu9-sub": "user@example.com", "Content-Type": "application/json"}
AT = "2023-11-14T22:13:20.000Z"


def compared(answer: WorldResponse, status: int, wanted: dict[str, Any]) -> None:
    """Compare the whole response; ids are taken from it, and the request id is also in the header."""
    content = answer.json()
    ids = {name: content[name] for name in ("requestId", "runId") if name in content}
    assert (answer.status, content) == (status, {"schemaVersion": "loop.runNextStep.v1"} | wanted | ids)
    assert answer.headers["x-request-id"] == content["requestId"]
    assert answer.headers["content-type"] == "application/json"


def executed(number: int, type: str, next_number: int, next_type: str) -> dict[str, Any]:
    step = {"stepNumber": number, "stepType": type, "status": "completed"}
    times = {"startedAt": AT, "completedAt": AT, "durationMs": 0}
    ahead = {"stepNumber": next_number, "stepType": next_type}
    return {"issueId": "AFU9-123", "stepExecuted": step | times, "nextStep": ahead, "loopStatus": "active"}


async def test_execute_mode_default() -> None:
    async with town() as t:
        path = "/api/loop/issues/AFU9-123/run-next-step"
        answer = await t.w.request("POST", path, body=b'{"mode": "execute"}', headers=HEADERS)
        compared(answer, 200, executed(1, "S1_PICK", 2, "S2_SPEC_GATE"))


async def test_dry_run_mode() -> None:
    async with town() as t:
        path = "/api/loop/issues/AFU9-123/run-next-step"
        answer = await t.w.request("POST", path, body=b'{"mode": "dryRun"}', headers=HEADERS)
        ahead = {"stepNumber": 1, "stepType": "S1_PICK"}
        wanted = {"issueId": "AFU9-123", "nextStep": ahead, "loopStatus": "active"}
        compared(answer, 200, wanted | {"message": "would execute step 1, S1_PICK"})


async def test_empty_body_default_execute() -> None:
    async with town() as t:
        path = "/api/loop/issues/AFU9-123/run-next-step"
        answer = await t.w.request("POST", path, body=b"{}", headers=HEADERS)
        compared(answer, 200, executed(1, "S1_PICK", 2, "S2_SPEC_GATE"))


async def test_error_handling() -> None:
    """As in the example there is no body, but the Content-Type of one."""
    async with town() as t:
        answer = await t.w.request("POST", "/api/loop/issues/INVALID/run-next-step", headers=HEADERS)
        message = "there is no issue 'INVALID'; create one with POST /api/loop/issues"
        compared(answer, 404, {"error": {"code": "ISSUE_NOT_FOUND", "message": message}, "timestamp": AT})
