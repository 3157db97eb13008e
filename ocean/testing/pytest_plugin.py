"""The fixture `ocean_world`, for whoever asks pytest for this plugin. Nothing is loaded where nobody does."""

from collections.abc import Iterator

import pytest

from ocean.testing.leaks import OpenWorld, TidyWorlds


@pytest.fixture
def ocean_world() -> Iterator[OpenWorld]:
    """Opens worlds as `ocean.testing.world` does; what is left running in one at its end fails the test."""
    worlds = TidyWorlds()
    yield worlds.open
    worlds.check_all_closed()
