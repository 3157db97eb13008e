import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Shell
from tests.http.kit import messy_clog
from tests.mcp.kit import McpWorld, mcp_world


@pytest.fixture
async def a(anyio_backend: Any) -> AsyncIterator[McpWorld]:
    async with mcp_world([messy_clog()]) as world:
        yield world


@pytest.fixture
def ocean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in its own folder, without the OCEAN_ variables of the environment."""
    for name in [name for name in os.environ if name.startswith("OCEAN_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)
