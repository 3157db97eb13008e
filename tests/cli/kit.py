"""Commands as they are typed, in this process or in a separate one."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ocean.cli.main import app

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
SHOP = "tests.cli.shop:both"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def path_with_ocean(folder: Path) -> str:
    """Write the command `ocean` into the folder and return a PATH that begins with it."""
    folder.mkdir(exist_ok=True)
    (folder / "ocean").write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m ocean "$@"\n')
    (folder / "ocean").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


class Answer:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


class Shell:
    """Runs commands in its own folder, by default with the clogs of the shop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = CliRunner()

    def __call__(self, *args: object, input: str | None = None, **environ: str) -> Answer:
        words = [str(arg) for arg in args]
        done = self.runner.invoke(app, words, input=input, env={"OCEAN_CLOGS": SHOP, "COLUMNS": "80", **environ})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)

    def json(self, *args: object, **more: Any) -> Any:
        return self(*args, "--json", **more).json

    def create(self, do: str = "done", *args: object) -> str:
        made = self.json("create", "shop", "--input", json.dumps({"do": do}), *args)
        run_id: str = made["runId"]
        return run_id

    def start(self, *args: object, **environ: str) -> "subprocess.Popen[str]":
        """Start the command as a separate process in the same folder."""
        kept = {name: value for name, value in os.environ.items() if name != "PORT" and not name.startswith("OCEAN_")}
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "ocean", *map(str, args)],
            cwd=self.folder,
            env=kept | {"PYTHONPATH": str(ROOT), "OCEAN_CLOGS": SHOP, "OCEAN_LOG": "off"} | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
