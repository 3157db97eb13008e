"""The order of `examples/order` under 40 kills of its server: as a handler and as a flow, on a file and on PostgreSQL.

`tests.crash.order_storm` is the long version.
"""

import os

import pytest

from tests.crash.order_storm import ClogId, order_storm
from tests.crash.places import Place

pytestmark = pytest.mark.anyio

KILLS = int(os.environ.get("ORDER_STORM_KILLS", "40"))
SEED = int(os.environ.get("ORDER_STORM_SEED", "1"))


@pytest.mark.parametrize("clog_id", ["order", "order-flow"])
async def test_forty_kills_lose_and_double_no_order(db: Place, clog_id: ClogId) -> None:
    found = await order_storm(db, clog_id, KILLS, SEED)
    print(found)  # noqa: T201
    assert found.kills == KILLS
    assert found.shipped > 0
    assert found.refunds > 0
    assert found.restarts > 0
