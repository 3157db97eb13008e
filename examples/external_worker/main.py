"""Lease runs to external programs: a worker in Python, and a shell script with curl."""

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import Popen

import anyio
import uvicorn

from ocean import Clog, Ocean
from ocean.http.app import make_app

HERE = Path(__file__).parent
SHOUT = r"""sed -E 's/.*"input":\{"text":"([^"\\]*)".*/"\1"/' | tr '[:lower:]' '[:upper:]'"""

shout = Clog("shout", external=True)


@asynccontextmanager
async def serving(ocean: Ocean) -> AsyncIterator[str]:
    """Serve on loopback, as there are no keys; without an access log, as paths contain secrets."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(make_app(ocean), access_log=False, log_level="error", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            server.should_exit = True


@contextmanager
def working(*command: str) -> Iterator[None]:
    """Run a worker, and stop it with all the processes it has started."""
    with Popen(command, start_new_session=True) as worker:
        try:
            yield
        finally:
            os.killpg(worker.pid, signal.SIGTERM)


def claim(worker_id: str, queue: str) -> str:
    request = {"clogId": "shout", "workerId": worker_id, "queues": [queue], "leaseMs": 30_000, "waitMs": 20_000}
    return json.dumps(request)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Ocean.open(f"sqlite:///{Path(folder) / 'ocean.db'}", clogs=[shout]) as ocean, serving(ocean) as url:
            python = working(sys.executable, str(HERE / "worker.py"), url, claim("worker.py", "snakes"))
            shell = working("sh", str(HERE / "worker.sh"), url, claim("worker.sh", "shells"), "sh", "-c", SHOUT)
            with python, shell:
                await demonstrate(ocean)


async def demonstrate(ocean: Ocean) -> None:
    words = {"one": "snakes", "two": "shells", "three": "snakes", "four": "shells"}
    for text, queue in words.items():
        run = await ocean.create_run(session_id="s", clog_id="shout", input={"text": text}, queue=queue)
        output = await ocean.result(run.run_id, timeout_ms=30_000)
        (tick,) = await ocean.list_ticks(run.run_id)
        print(f"{text} -> {output} from the queue {queue}, by {tick.instance_id}")


if __name__ == "__main__":
    anyio.run(main)
