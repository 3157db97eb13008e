"""Starting, reading and killing victims."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90
"""Limit for a victim that never reaches its point: exceeding it is a failure."""


class ForkServer:
    """The client of the fork server. The processes do what `live` of the module does."""

    def __init__(self, module: str = "tests.crash.victim") -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PATIENCE_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.fork_server", str(theirs.fileno()), module],
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )

    def fork(self, args: list[str], fds: list[int]) -> int:
        socket.send_fds(self._socket, [json.dumps({"args": args}).encode()], fds)
        pid: int = self._answer()
        return pid

    def wait(self, pid: int, options: int = 0) -> int:
        self._socket.send(json.dumps({"wait": pid, "options": options}).encode())
        status: int = self._answer()
        return status

    def _answer(self) -> Any:
        return json.loads(self._socket.recv(65_536))

    def close(self) -> None:
        self._socket.close()
        self._process.wait(PATIENCE_S)


class Victim:
    def __init__(self, fork_server: ForkServer, scenario: str, *args: object) -> None:
        self._fork_server = fork_server
        (stdin, self._in), (self._out, stdout), (self._err, stderr) = (os.pipe() for _ in range(3))
        self.pid = fork_server.fork([scenario, *map(str, args)], [stdin, stdout, stderr])
        self.instance = f"victim-{self.pid}"
        self._output = b""
        self._has_ended = False
        for fd in (stdin, stdout, stderr):
            os.close(fd)

    def fileno(self) -> int:
        return self._out

    def read_line(self) -> str:
        """The next line of its output; empty if it has ended by itself, successfully."""
        while b"\n" not in self._output:
            ready, _, _ = select.select([self], [], [], PATIENCE_S)
            assert ready, f"{self.instance} has printed nothing for {PATIENCE_S} s"
            part = os.read(self._out, 4_096)
            if not part:
                assert self._end() == 0, os.read(self._err, 65_536).decode()
                return ""
            self._output += part
        line, self._output = self._output.split(b"\n", 1)
        return line.decode()

    def wait_for_end(self) -> int:
        """The status with which it has ended by itself."""
        return os.waitstatus_to_exitcode(self._end())

    def go_on(self) -> None:
        os.write(self._in, b"go on\n")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self._end() == signal.SIGKILL

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(self._fork_server.wait(self.pid, os.WUNTRACED))

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        if not self._has_ended:
            os.kill(self.pid, signal.SIGKILL)
            self._end()
        for fd in (self._in, self._out, self._err):
            os.close(fd)

    def _end(self) -> int:
        self._has_ended = True
        return self._fork_server.wait(self.pid)


Start = Callable[..., Victim]
