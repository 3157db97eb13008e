"""Waiting for a ticker's work."""

import anyio

from ocean.testing import World
from ocean.ticking import Ticker
from tests.lifecycle.acting import let_others_go_on

PATIENCE_S = 30


async def until_ticks(w: World, one: Ticker, count: int) -> None:
    with anyio.fail_after(PATIENCE_S):
        while one.ticks < count:
            await let_others_go_on(w)
