"""`ocean serve` in a process of its own, and a client with a persistent connection."""

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
"""The server closes a connection after 5 s without a request; the client opens a new one before."""


class Server:
    """A running server and its client. `post` and `get` block: one request at a time."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self._used_at = time.monotonic()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: Any) -> Any:
        return self._request("POST", path, json.dumps(body))

    def get(self, path: str) -> Any:
        return self._request("GET", path, None)

    def _request(self, method: str, path: str, body: str | None) -> Any:
        if time.monotonic() - self._used_at > IDLE_S:
            self._connection.close()
        self._connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        response = self._connection.getresponse()
        text = response.read()
        self._used_at = time.monotonic()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:300]!r}")
        return json.loads(text) if text else None

    async def apost(self, path: str, body: Any) -> Any:
        return await asyncio.to_thread(self.post, path, body)


@contextmanager
def running_server(url: str, clogs: str, *, is_apart: bool = False) -> Iterator[Server]:
    """Start a server with `clogs`, as `--clogs` takes them, and stop it afterwards. With `is_apart` it shares no
    processor with this process, if there are two and the system allows it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--db", url, "--port", str(port), "--clogs", clogs, "--log", "off"]
    command = [sys.executable, "-m", "ocean", "serve", *options]
    process = subprocess.Popen(command, stdout=sys.stderr, env=os.environ)
    everywhere = os.sched_getaffinity(0) if is_apart and hasattr(os, "sched_getaffinity") else set()
    try:
        if len(everywhere) > 1:
            # Otherwise a receiver is woken on the processor of the sender, and slows it down.
            os.sched_setaffinity(process.pid, everywhere - {max(everywhere)})
            os.sched_setaffinity(0, {max(everywhere)})
        _await_listening(process, port)
        yield Server(port, process.pid)
    finally:
        if everywhere:
            os.sched_setaffinity(0, everywhere)
        process.terminate()
        process.wait(30)


def _await_listening(process: subprocess.Popen[bytes], port: int) -> None:
    give_up_at = time.monotonic() + 60
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the server did not start within 60 s")
