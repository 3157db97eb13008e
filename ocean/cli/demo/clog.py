"""The clog of the demo: a run is a courier, and each tick delivers one parcel."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from pydantic import BaseModel

from ocean import Clog, Done, Ok, Outcome, Tick

CLOG_ID = "courier"
SPOKE = "courier.spoke"
DELIVERED = "courier.delivered"
WALK_S = 0.15
"""How long a delivery takes, so that the output can be read as it appears."""

LINES = ("a parcel for you", "mind the stairs", "sign here, please", "it is heavy", "from far away", "careful, fragile")


class Bag(BaseModel):
    """The run row of a courier: what has been delivered so far."""

    parcels: int = 0
    kilos: int = 0


async def _do_nothing(tick: Tick) -> None:
    """Return at once: the default of `before_commit`."""


def courier_clog(before_commit: Callable[[Tick], Awaitable[None]] = _do_nothing) -> Clog:
    """Return the clog. `before_commit` is called when the handler has done its work, before it returns."""
    courier = Clog(CLOG_ID, run_state=Bag)

    @courier.on_advance
    async def deliver(tick: Tick) -> Outcome:
        bag = (await tick.read(run=True)).run or Bag()
        parcel = tick.input
        receipt = await tick.step("receipt", lambda key: secrets.token_hex(2))
        line = LINES[(parcel["number"] + parcel["kilos"]) % len(LINES)]
        await tick.stream(SPOKE, {"line": line, "receipt": receipt})
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
