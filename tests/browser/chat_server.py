"""The server of the chat example, started as a user starts it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "examples" / "chat_page" / "main.py"


class ChatServer:
    """A server with a database file that outlives it; after a restart it has the same address."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def _settings(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OCEAN_")}
        return clean | {"PYTHONPATH": str(ROOT), "OCEAN_LOG": "off", "CHAT_PAGE_PAUSE_S": "0.02"}

    def start(self) -> None:
        options = ["--port", str(self.port), "--db", f"sqlite:///{self._path}", "--json"]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(MAIN), *options],
            cwd=self._path.parent,
            env=self._settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.stderr and self._process.stderr.read()
        self.port = int(json.loads(line)["url"].rsplit(":", 1)[1])

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """Stop it, and check its exit code and standard error."""
        assert self._process is not None
        self._process.terminate()
        _, stderr = self._process.communicate(timeout=60)
        assert (self._process.returncode, stderr) == (0, "")

    def new_key(self) -> str:
        command = [
            sys.executable,
            "-m",
            "ocean",
            "keys",
            "create",
            "--actor",
            "ann",
            "--scope",
            "read",
            "--scope",
            "signal",
        ]
        done = subprocess.run(
            [*command, "--db", f"sqlite:///{self._path}"],
            env=self._settings,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()


@contextmanager
def running(path: Path) -> Iterator[ChatServer]:
    server = ChatServer(path)
    server.start()
    try:
        yield server
    except BaseException:
        server.kill()
        raise
    server.stop()
