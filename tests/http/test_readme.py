"""Paste the HTTP commands of docs/quickstart.md into a shell and compare their responses."""

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import free_port, path_with_ocean

pytestmark = pytest.mark.xdist_group("processes")

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
PASTED = re.compile(r"^## Over HTTP$.*?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pasted(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run commands in a shell where `ocean` is this version and curl fails on an error status."""
    (folder / ".curlrc").write_text("fail-with-body\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OCEAN")}
    paths = {"PATH": path_with_ocean(folder / "bin"), "PYTHONPATH": str(ROOT), "CURL_HOME": str(folder)}
    shell = subprocess.Popen(
        ["bash", "-euc", script],
        cwd=folder,
        env=kept | paths,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = shell.communicate(timeout=TIMEOUT_S)
    finally:
        # The server too, if the script did not finish.
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(shell.args, shell.returncode, out, err)


def is_part(part: Any, whole: Any) -> bool:
    """Return whether a JSON value contains another one; lists must have the same length."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and is_part(part[name], whole[name]) for name in part)
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)


def test_the_commands_of_the_quick_start_work_when_pasted_and_respond_as_shown(tmp_path: Path) -> None:
    (script,) = PASTED.findall((ROOT / "docs" / "quickstart.md").read_text())
    done = pasted(script.replace("8080", str(free_port())), tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    # The stream runs in parallel with the last response and may begin a frame on the same line.
    responses = [json.JSONDecoder().raw_decode(line)[0] for line in lines if line.startswith("{")]
    wanted = [json.loads(line.removeprefix("# ")) for line in script.splitlines() if line.startswith("# ")]
    assert len(responses) == len(wanted) == 6
    assert [(want, got) for want, got in zip(wanted, responses, strict=True) if not is_part(want, got)] == []
    types = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert (types.count("greeted"), types[0], types[-1]) == (3, "run.created", "run.done")
