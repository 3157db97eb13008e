"""Three processes under `kill -9`, on a file and on PostgreSQL. `tests.crash.storm` is the long version."""

import pytest

from tests.crash.places import Place
from tests.crash.storm import storm

pytestmark = pytest.mark.anyio

SECONDS = 6


async def test_many_kills_lose_and_repeat_nothing(db: Place) -> None:
    found = await storm(db, SECONDS)
    assert found.kills >= 3
    assert found.ticks == found.stored >= found.acknowledged > 0
