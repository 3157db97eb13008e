"""The demo's clog: a courier, one run each, who delivers one parcel a tick."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from pydantic import BaseModel

from ocean import Clog, Done, Ok, Outcome, Tick

CLOG_ID = "courier"
SAID = "courier.said"
DELIVERED = "courier.delivered"
WALK_S = 0.15
"""How long a delivery takes: without it the demo would be over before it could be read."""

LINES = ("a parcel for you", "mind the stairs", "sign here, please", "it is heavy", "from far away", "careful, fragile")


class Bag(BaseModel):
    """A courier's run row."""

    parcels: int = 0
    kilos: int = 0


async def _go_on(tick: Tick) -> None:
    """What a courier does between the work and the commit, unless someone waits for it there."""


def courier_clog(before_commit: Callable[[Tick], Awaitable[None]] = _go_on) -> Clog:
    courier = Clog(CLOG_ID, run_state=Bag)

    @courier.on_advance
    async def deliver(tick: Tick) -> Outcome:
        bag = (await tick.read(run=True)).run or Bag()
        parcel = tick.input
        receipt = await tick.step("receipt", lambda key: secrets.token_hex(2))
        line = LINES[(parcel["number"] + parcel["kilos"]) % len(LINES)]
        await tick.stream(SAID, {"line": line, "receipt": receipt})
        await anyio.sleep(WALK_S)
        bag = Bag(parcels=bag.parcels + 1, kilos=bag.kilos + parcel["kilos"])
        await tick.write(run=bag)
        await tick.emit(DELIVERED, {"parcel": parcel["number"], "receipt": receipt, **bag.model_dump()})
        await before_commit(tick)
        return Done(bag.model_dump()) if bag.parcels == parcel["of"] else Ok()

    @courier.method
    async def bag(tick: Tick, payload: Any) -> dict[str, int]:
        found: Bag = (await tick.read(run=True)).run or Bag()
        return found.model_dump()

    return courier
