"""The environment that the peers live in: made when it is first needed, kept beside the bench, and made anew when
`peers.txt` says something else."""

import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.saying import say

HERE = Path(__file__).parent
LIST = HERE / "peers.txt"


@cache
def peers_python() -> str:
    """The interpreter of that environment."""
    which = hashlib.sha256(LIST.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = HERE / ".peers" / which
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        say(f"installing the peers into {folder.relative_to(HERE.parent)}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", LIST], check=True, stdout=sys.stderr)
        (folder / "complete").touch()
    return str(python)


def peer_versions() -> dict[str, str]:
    pins = (line.split("==") for line in LIST.read_text().splitlines() if "==" in line)
    return {name.split("[")[0]: version for name, version in pins}
