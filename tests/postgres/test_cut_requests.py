"""A connection that is cut at any request of a day does not change the day's story."""

import random

import pytest

from tests.postgres.cut_requests import NEVER, day
from tests.postgres.proxy import Cut

pytestmark = pytest.mark.anyio

DAYS = 5


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_day_whose_connection_is_cut_at_any_request_has_the_same_result(cut: Cut) -> None:
    """`python -m tests.postgres.cut_requests` cuts at every single request."""
    wanted, requests, errors = await day("before", NEVER)
    assert not errors
    for nth in random.Random(cut).sample(range(1, requests), DAYS):
        seen, _, _ = await day(cut, nth)
        assert seen == wanted, f"cut {cut} request {nth}"
