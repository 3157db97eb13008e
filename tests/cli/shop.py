"""Clogs for the tests of commands: `shop` does what its input names; `porter` is for external workers."""

import asyncio
from typing import Any

import anyio

from ocean import Clog, Done, Failed, Ok, Outcome, Refuse, Tick, Wait

shop = Clog("shop")
porter = Clog("porter", external=True)


@shop.on_advance
async def advance(tick: Tick) -> Outcome:
    request = tick.input if isinstance(tick.input, dict) else {}
    match request.get("do"):
        case "done":
            return Done(request.get("output"))
        case "fail":
            return Failed("sold out")
        case "break":
            raise ValueError("the till is jammed")
        case "toil":
            await tick.stream("toiling")
            await anyio.sleep(request["s"])
            return Done("at last")
        case "say":
            return Done(type(asyncio.get_running_loop()).__module__)
        case "wait":
            return Wait(for_ms=3_600_000)
        case "sell":
            await tick.read(run=True)
            await tick.write(run={"sold": request["what"]})
            await tick.emit("sold", {"what": request["what"]})
    return Ok()


@shop.method
async def price(tick: Tick, payload: Any) -> dict[str, Any]:
    if payload == "nothing":
        raise Refuse("nothing has no price", code="no_price")
    return {"price": 3, "of": payload}


def both() -> list[Clog]:
    return [shop, porter]
