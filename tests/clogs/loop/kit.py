"""A world with the Loop API, called like a server, and a desk that a test can block or break."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from clogs.loop import Facts, Loop, LoopStepFailed, OnPaper, Sight, afu9
from ocean.testing import World, world
from ocean.testing.requests import WorldResponse
from tests.invariants import check

ISSUE = "AFU9-123"
ANN = "user@example.com"
WHO = {"x-afu9-sub": ANN}
CLICK = f"/api/loop/issues/{ISSUE}/run-next-step"
OPEN = {"spec": "https://docs.example/7", "review": "approved", "deployment": "deployed", "verdict": "green"}
"""Facts that let an issue through every gate."""
TYPES = [
    "S1_PICK", "S2_SPEC_GATE", "S3_IMPLEMENT_PREP", "S4_REVIEW_GATE", "S5_MERGE", "S6_OBSERVE", "S7_VERIFY_GATE",
    "S8_CLOSE", "S9_REMEDIATE",
]  # fmt: skip


class Workbench(OnPaper):
    """Merge and prepare like an idempotent service: a repeated key has no second effect."""

    def __init__(self) -> None:
        self.merge_calls: list[tuple[str, str]] = []
        self.merged: dict[str, str] = {}
        self.troubles: list[Exception] = []
        self.troubles_after: list[Exception] = []
        self.gate_troubles: list[Exception] = []
        self.at_work, self.go_on = anyio.Event(), anyio.Event()
        self.is_held = False

    def hold(self) -> None:
        """The next merge blocks until `go_on`."""
        self.is_held, self.at_work, self.go_on = True, anyio.Event(), anyio.Event()

    async def review(self, sight: Sight) -> Any:
        if self.gate_troubles:
            raise self.gate_troubles.pop(0)
        return await super().review(sight)

    async def merge(self, sight: Sight, key: str) -> Facts:
        self.merge_calls.append((sight.issue_id, key))
        if self.is_held:
            self.is_held = False
            self.at_work.set()
            await self.go_on.wait()
        if self.troubles:
            raise self.troubles.pop(0)
        self.merged.setdefault(key, f"sha-{len(self.merged) + 1}")
        if self.troubles_after:
            raise self.troubles_after.pop(0)
        return {"mergeSha": self.merged[key]}


REFUSED = LoopStepFailed("MERGE_REFUSED", "the branch has conflicts")


@dataclass
class Town:
    w: World
    loop: Loop
    desk: Workbench
    responses: list[WorldResponse] = field(default_factory=list)

    async def issue(self, facts: Mapping[str, Any] = OPEN, issue_id: str = ISSUE) -> None:
        await self.loop.create_issue(self.w.ocean, "mend the door", actor=ANN, issue_id=issue_id, facts=facts)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> WorldResponse:
        """With the header of the contract, unless it is given as empty."""
        named = WHO | {name.replace("_", "-"): text for name, text in headers.items()}
        sent = {name: text for name, text in named.items() if text}
        if isinstance(body, bytes):
            return await self.w.request(method, path, body=body, headers=sent)
        return await self.w.request(method, path, **({} if body is None else {"json": body}), headers=sent)

    async def click(self, body: Any = None, *, issue_id: str = ISSUE, **headers: str) -> WorldResponse:
        answer = await self.ask("POST", f"/api/loop/issues/{issue_id}/run-next-step", body, **headers)
        self.responses.append(answer)
        return answer

    async def clicks(self, count: int) -> list[Any]:
        return [(await self.click()).json() for _ in range(count)]

    async def seen(self, path: str = f"/api/loop/issues/{ISSUE}") -> Any:
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json()

    async def until_merge(self) -> None:
        """Four steps done; the next is the merge."""
        assert [answer["stepExecuted"]["stepNumber"] for answer in await self.clicks(4)] == [1, 2, 3, 4]


@asynccontextmanager
async def town(**facts: Any) -> AsyncIterator[Town]:
    """A world with an issue whose gates are open, except for the given facts."""
    desk = Workbench()
    loop = Loop(afu9(desk))
    async with world(clogs=loop.clogs) as w:
        made = Town(w, loop, desk)
        await made.issue({**OPEN, **facts})
        yield made
        await check(w)


def error_of(answer: WorldResponse, status: int, code: str) -> Any:
    """Check the envelope of the contract and return the error."""
    content = answer.json()
    assert (answer.status, content["error"]["code"]) == (status, code), content
    assert set(content) == {"schemaVersion", "requestId", "error", "timestamp"}
    assert set(content["error"]) <= {"code", "message", "details"}
    assert (content["schemaVersion"], answer.headers["x-request-id"]) == ("loop.runNextStep.v1", content["requestId"])
    return content["error"]


def text_of(answer: WorldResponse) -> str:
    return json.dumps(answer.json())
