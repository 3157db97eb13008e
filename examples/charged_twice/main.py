"""Find a shop that charges twice if its process dies at the wrong moment, and show the corrected shop."""

import json
from typing import Any

import anyio

from ocean import Clog, Done, FetchResponse, Outcome, Tick
from ocean.testing import CrashFound, Outside, World, crash_everywhere, world

CHARGES = "https://pay.example/charges"
TOOLS = [
    *("ocean.storage.read_scoped", "ocean.storage.write_scoped", "ocean.events.emit"),
    *("ocean.steps.run", "ocean.http.fetch"),
]

hasty = Clog("hasty", tools=TOOLS)
careful = Clog("careful", tools=TOOLS)


@hasty.on_advance
async def pay_at_once(tick: Tick) -> Outcome:
    """Charge without a step: if the process dies before the commit, the next call of the tick charges again."""
    await tick.read(run=True)
    receipt = await charge(tick, {})
    return await close(tick, receipt)


@careful.on_advance
async def pay_in_a_step(tick: Tick) -> Outcome:
    """Charge in a step: a stored result is not repeated; before that, the service recognises the key."""
    await tick.read(run=True)
    receipt = await tick.step("charge", lambda key: charge(tick, {"Idempotency-Key": key}))
    return await close(tick, receipt)


async def charge(tick: Tick, headers: dict[str, str]) -> Any:
    body = json.dumps({"card": tick.input["card"], "amount": tick.input["amount"]}).encode()
    response: FetchResponse = await tick.fetch(CHARGES, method="POST", headers=headers, body=body)
    return response.json()


async def close(tick: Tick, receipt: Any) -> Outcome:
    await tick.write(run={"receipt": receipt["id"]})
    await tick.emit("order.paid", {"receipt": receipt["id"]})
    return Done({"receipt": receipt["id"]})


def payment_service() -> Outside:
    outside = Outside()
    outside.answer(f"POST {CHARGES}", {"id": "ch_1"})
    return outside


async def an_order(w: World) -> None:
    shop = w.ocean.clogs[0].clog_id
    await w.ocean.create_run(session_id="market", clog_id=shop, input={"card": "ada's", "amount": 40})
    await w.drain()


async def main() -> None:
    for shop in (hasty, careful):
        async with world([shop], outside=payment_service()) as w:
            await an_order(w)
            print(f"{shop.clog_id}: an ordinary test sees {len(w.outside.effects())} charge")
        try:
            print(f"{shop.clog_id}:", await crash_everywhere([shop], an_order, outside=payment_service))
        except CrashFound as found:
            print(f"{shop.clog_id}:", found)


if __name__ == "__main__":
    anyio.run(main)
