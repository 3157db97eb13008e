"""The commands of docs/access.md, as they are pasted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import ROOT, Shell

SCRIPT = (ROOT / "docs" / "access.md").read_text().split("```sh\n")[1].split("```")[0]


@pytest.fixture
def ocean_on_path(tmp_path: Path) -> Path:
    """A folder with an `ocean` that is this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ocean").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ocean "$@"\n')
    (folder / "ocean").chmod(0o755)
    return folder


def test_the_commands_of_the_document_work_when_pasted(ocean: Shell, ocean_on_path: Path) -> None:
    with ocean.start("serve", "--port", 0, "--json", OCEAN_CLOGS="clogs.counter:counter") as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", SCRIPT],
                cwd=ocean.folder,
                env=os.environ
                | {"OCEAN": url, "PATH": f"{ocean_on_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            server.terminate()
        assert server.wait(60) == 0
    assert done.returncode == 0, done.stderr
    assert '{"actor":"ann","roles":[],"scopes":["read","signal"],"sessions":null,"csrfToken":null}' in done.stdout
    assert '"clogId":"counter"' in done.stdout
    assert done.stdout.rstrip().endswith(" of ann")
