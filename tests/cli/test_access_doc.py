"""The commands of docs/access.md, as they are pasted."""

import json
import os
import subprocess
from pathlib import Path

from tests.cli.kit import ROOT, Shell, path_with_ocean

SCRIPT = (ROOT / "docs" / "access.md").read_text().split("```sh\n")[1].split("```")[0]


def test_the_commands_of_the_document_work_when_pasted(ocean: Shell, tmp_path: Path) -> None:
    with ocean.start("serve", "--port", 0, "--json", OCEAN_CLOGS="clogs.counter:counter") as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", SCRIPT],
                cwd=ocean.folder,
                env=os.environ | {"OCEAN": url, "PATH": path_with_ocean(tmp_path / "bin"), "PYTHONPATH": str(ROOT)},
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
