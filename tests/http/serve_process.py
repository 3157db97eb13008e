"""`ocean serve` as a separate process with a database file that outlives it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from tests.http.stream_client import TIMEOUT_S

ROOT = Path(__file__).parents[2]


class ServeProcess:
    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port

    async def ended(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal and return the exit code and standard error."""
        self.process.send_signal(number)
        _, err = await anyio.to_thread.run_sync(lambda: self.process.communicate(timeout=TIMEOUT_S))
        return self.process.returncode, err


def start_serve(path: Path, clogs: str, port: int) -> "subprocess.Popen[str]":
    options = ["--port", str(port), "--db", f"sqlite:///{path}", "--clogs", clogs, "--json"]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "ocean", "serve", *options],
        cwd=path.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OCEAN_LOG": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@asynccontextmanager
async def serve_process(path: Path, clogs: str, port: int = 0) -> AsyncIterator[ServeProcess]:
    process = start_serve(path, clogs, port)
    try:
        assert process.stdout is not None
        line = await anyio.to_thread.run_sync(process.stdout.readline)
        assert line, process.stderr and process.stderr.read()
        yield ServeProcess(process, int(json.loads(line)["url"].rsplit(":", 1)[1]))
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()
