"""An issue goes through its loop, click by click, over HTTP; what is outside is asked again under the same key."""

import json
import socket
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import anyio
import anyio.to_thread
import uvicorn

from clogs.loop import Facts, Loop, OnPaper, Sight, afu9
from ocean import Ocean
from ocean.http.app import make_app


class CodeHost(OnPaper):
    """Stands for a code host. Reviews, deployments and verdicts are reported as facts; merging is an effect."""

    def __init__(self) -> None:
        self.merges: dict[str, str] = {}
        self.asked = 0

    async def merge(self, sight: Sight, key: str) -> Facts:
        self.asked += 1
        self.merges.setdefault(key, f"commit-{len(self.merges) + 1}")
        if self.asked == 1:
            raise ConnectionError("merged, but nobody heard the answer")
        return {"commit": self.merges[key]}


host = CodeHost()
loop = Loop(afu9(host))


@asynccontextmanager
async def serving(ocean: Ocean) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(make_app(ocean), access_log=False, log_level="error", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/api/loop/issues"
            server.should_exit = True


def ask(method: str, url: str, said: Any = None, **headers: str) -> tuple[int, Any]:
    named = {"x-afu9-sub": "ann@example.com", "Content-Type": "application/json"}
    named |= {name.replace("_", "-"): text for name, text in headers.items()}
    body = None if said is None else json.dumps(said).encode()
    request = urllib.request.Request(url, body, named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def told(status: int, said: Any) -> str:
    if "error" in said:
        return f"{status} {said['error']['code']}: {said['error']['message']}"
    step = said.get("stepExecuted")
    return f"{status} {said['loopStatus']}: {said.get('message') or step['stepType'] + ' ' + step['status']}"


def play(issues: str) -> None:
    """What a person at a screen does."""
    facts = {"spec": "https://docs.example/7"}
    ask("POST", issues, {"issueId": "AFU9-123", "title": "Mend the door", "facts": facts})
    issue = f"{issues}/AFU9-123"
    click = f"{issue}/run-next-step"
    print("dry run:", told(*ask("POST", click, {"mode": "dryRun"})))
    print("first:", told(*ask("POST", click, Idempotency_Key="click-1")))
    print("the same click again:", told(*ask("POST", click, Idempotency_Key="click-1")))
    print("next:", told(*ask("POST", click)))
    print("next:", told(*ask("POST", click)))
    print("next:", told(*ask("POST", click)))
    ask("PATCH", issue, {"facts": {"review": "approved", "deployment": "deployed", "verdict": "green"}})
    print("reviewed:", told(*ask("POST", click)))
    print("merged:", told(*ask("POST", click)))
    for _ in range(3):
        print("next:", told(*ask("POST", click)))
    print("once more:", told(*ask("POST", click)))
    print("unknown:", told(*ask("POST", f"{issues}/AFU9-124/run-next-step")))
    events = ask("GET", f"{issue}/events?limit=4")[1]["events"]
    print("newest events:", [event["type"] for event in events])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ocean.db'}"
        async with Ocean.open(url, clogs=loop.clogs) as ocean, serving(ocean) as issues:
            await anyio.to_thread.run_sync(play, issues)
            shown = await loop.get_issue(ocean, "AFU9-123")
            print(f"the issue is {shown.state}; asked to merge {host.asked} times, merged {[*host.merges.values()]}")


if __name__ == "__main__":
    anyio.run(main)
