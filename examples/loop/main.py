"""Move an issue through its plan over HTTP, one step per click; repeat a lost external request with the same key."""

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
    """Simulate a code host. Reviews, deployments and verdicts are reported as facts; merging is an effect."""

    def __init__(self) -> None:
        self.merges: dict[str, str] = {}
        self.requests = 0

    async def merge(self, sight: Sight, key: str) -> Facts:
        self.requests += 1
        self.merges.setdefault(key, f"commit-{len(self.merges) + 1}")
        if self.requests == 1:
            raise ConnectionError("merged, but the response was lost")
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


def send(method: str, url: str, content: Any = None, **headers: str) -> tuple[int, Any]:
    all_headers = {"x-afu9-sub": "ann@example.com", "Content-Type": "application/json"}
    all_headers |= {name.replace("_", "-"): text for name, text in headers.items()}
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url, body, all_headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def summary(status: int, body: Any) -> str:
    if "error" in body:
        return f"{status} {body['error']['code']}: {body['error']['message']}"
    step = body.get("stepExecuted")
    return f"{status} {body['loopStatus']}: {body.get('message') or step['stepType'] + ' ' + step['status']}"


def use(issues: str) -> None:
    """Send the requests of a user."""
    facts = {"spec": "https://docs.example/7"}
    send("POST", issues, {"issueId": "AFU9-123", "title": "Mend the door", "facts": facts})
    issue = f"{issues}/AFU9-123"
    click = f"{issue}/run-next-step"
    print("dry run:", summary(*send("POST", click, {"mode": "dryRun"})))
    print("first:", summary(*send("POST", click, Idempotency_Key="click-1")))
    print("the same click repeated:", summary(*send("POST", click, Idempotency_Key="click-1")))
    print("next:", summary(*send("POST", click)))
    print("next:", summary(*send("POST", click)))
    print("next:", summary(*send("POST", click)))
    send("PATCH", issue, {"facts": {"review": "approved", "deployment": "deployed", "verdict": "green"}})
    print("reviewed:", summary(*send("POST", click)))
    print("merged:", summary(*send("POST", click)))
    for _ in range(3):
        print("next:", summary(*send("POST", click)))
    print("after the last step:", summary(*send("POST", click)))
    print("unknown:", summary(*send("POST", f"{issues}/AFU9-124/run-next-step")))
    events = send("GET", f"{issue}/events?limit=4")[1]["events"]
    print("newest events:", [event["type"] for event in events])


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'ocean.db'}"
        async with Ocean.open(url, clogs=loop.clogs) as ocean, serving(ocean) as issues:
            await anyio.to_thread.run_sync(use, issues)
            shown = await loop.get_issue(ocean, "AFU9-123")
            print(f"the issue is {shown.state}; merge requests: {host.requests}, merges: {[*host.merges.values()]}")


if __name__ == "__main__":
    anyio.run(main)
