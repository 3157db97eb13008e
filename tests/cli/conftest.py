import sys
from pathlib import Path

import pytest

from tests.cli.kit import Shell


@pytest.fixture
def ocean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("OCEAN_DB", "OCEAN_CLOGS", "OCEAN_HOST", "PORT", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Shell(tmp_path)
