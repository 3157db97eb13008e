"""Tests that need the machine's processes to themselves are kept together on one worker."""

import pytest


@pytest.mark.xdist_group("kept together")
def test_a_group_is_known_to_whoever_shares_out_the_tests(request: pytest.FixtureRequest) -> None:
    """It goes by the test's name: a pytest that hides it there would share them out like all others, without a word."""
    if hasattr(request.config, "workerinput"):
        assert request.node.nodeid.endswith("@kept together")
