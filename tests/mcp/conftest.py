import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Shell
from tests.mcp.kit import Agency, agency


@pytest.fixture
async def a(anyio_backend: Any) -> AsyncIterator[Agency]:
    async with agency() as made:
        yield made


@pytest.fixture
def ocean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """In a folder of its own; nothing of the outer environment is heard."""
    for name in [name for name in os.environ if name.startswith("OCEAN_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)
