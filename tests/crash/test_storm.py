"""Three processes under `kill -9`, on a file and on PostgreSQL. `tests.crash.storm` is the long one."""

import pytest

from tests.crash.places import Place
from tests.crash.storm import storm

pytestmark = pytest.mark.anyio

SECONDS = 6


async def test_a_storm_of_kills_loses_and_doubles_nothing(db: Place) -> None:
    found = await storm(db, SECONDS)
    assert found.kills >= 3
    assert found.ticks == found.stored >= found.acknowledged > 0
