"""The virtual environment of the peers: created when first needed, kept in `bench/.peers`, and created again when
`peers.txt` changes."""

import hashlib
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.output import progress

HERE = Path(__file__).parent
LIST = HERE / "peers.txt"


@cache
def peers_python() -> str:
    """Return the interpreter of the peers' environment, installing the peers if needed."""
    which = hashlib.sha256(LIST.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = HERE / ".peers" / which
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        progress(f"installing the peers into {folder.relative_to(HERE.parent)}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", LIST], check=True, stdout=sys.stderr)
        (folder / "complete").touch()
    return str(python)


def peer_versions() -> dict[str, str]:
    """Return the version of each peer, as `peers.txt` pins it."""
    pins = (line.split("==") for line in LIST.read_text().splitlines() if "==" in line)
    return {name.split("[")[0]: version for name, version in pins}
