"""The fixture `ocean_world`. Pytest loads this plugin only where a conftest names it."""

from collections.abc import Iterator

import pytest

from ocean.testing.leaks import CheckedWorlds, OpenWorld


@pytest.fixture
def ocean_world() -> Iterator[OpenWorld]:
    """Open worlds as `ocean.testing.world` does. The test fails if it leaves something running in one."""
    worlds = CheckedWorlds()
    yield worlds.open
    worlds.check_all_closed()
