"""Tests that need the machine's processes to themselves are kept together on one worker."""

import pytest


@pytest.mark.xdist_group("kept together")
def test_the_group_of_a_test_is_in_its_name(request: pytest.FixtureRequest) -> None:
    """xdist reads the group from the name: without it, these tests would silently be distributed like all others."""
    if hasattr(request.config, "workerinput"):
        assert request.node.nodeid.endswith("@kept together")
