"""A server as its users have it, `ocean serve` in a process of its own, and a client on a connection that is kept."""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

IDLE_S = 2
"""A server closes a connection that nothing has come by for 5 s; by then we have another."""


class Served:
    """`post` and `get` block: one caller, one request at a time."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self._used_at = time.monotonic()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: Any) -> Any:
        return self._asked("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        return self._asked("GET", path, None)

    def _asked(self, method: str, path: str, body: str | None) -> Any:
        if time.monotonic() - self._used_at > IDLE_S:
            self._connection.close()
        self._connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = self._connection.getresponse()
        text = answer.read()
        self._used_at = time.monotonic()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    async def apost(self, path: str, body: Any) -> Any:
        return await asyncio.to_thread(self.post, path, body)


@contextmanager
def serving(url: str, clogs: str, *, is_apart: bool = False) -> Iterator[Served]:
    """`clogs` as `--clogs` takes them. `is_apart`: it shares no processor with this process, if there are two
    and the system lets us choose."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--db", url, "--port", str(port), "--clogs", clogs, "--log", "off"]
    command = [sys.executable, "-m", "ocean", "serve", *options]
    process = subprocess.Popen(command, stdout=sys.stderr, env=os.environ)
    everywhere = os.sched_getaffinity(0) if is_apart and hasattr(os, "sched_getaffinity") else set()
    try:
        if len(everywhere) > 1:
            # Otherwise whoever is sent something is woken on the processor of the sender, and takes it from him.
            os.sched_setaffinity(process.pid, everywhere - {max(everywhere)})
            os.sched_setaffinity(0, {max(everywhere)})
        _await_listening(process, port)
        yield Served(port, process.pid)
    finally:
        if everywhere:
            os.sched_setaffinity(0, everywhere)
        process.terminate()
        process.wait(30)


def _await_listening(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the server did not come up")
