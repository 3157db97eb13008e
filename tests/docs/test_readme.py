"""The README's flow: saved, killed and run again as the README shows."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()
PROGRAM = re.compile(r"^```python fragment\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST_README = 100


def typed(command: str, folder: Path) -> list[str]:
    """Run one command line of the session, and return what a terminal shows below it."""
    python, *words = command.split()
    assert python == "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OCEAN_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.returncode in (0, -signal.SIGKILL)
    return [*done.stdout.splitlines(), *(["Killed"] if done.returncode else [])]


def test_the_flow_of_the_readme_survives_its_kill_and_prints_what_is_shown(tmp_path: Path) -> None:
    (program,), (session,) = PROGRAM.findall(PAGE), SESSION.findall(PAGE)
    (tmp_path / "order.py").write_text(program)
    shown = session.splitlines()
    commands = [line.removeprefix("$ ") for line in shown if line.startswith("$ ")]
    printed = [line for command in commands for line in (f"$ {command}", *typed(command, tmp_path))]
    assert printed == shown
    assert "Killed" in printed


def test_the_readme_fits_on_one_screen() -> None:
    assert len(PAGE.splitlines()) <= LONGEST_README
