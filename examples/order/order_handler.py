"""An order as a handler: a row with a state, one tick for each event.

The rule for effects that must be undone: **write the intention first**. The first tick commits the row with the state
`charging`, and only the next one charges. Whatever ends the run, and wherever its process died, `on_end` finds a
row if there may be a charge, and refunds it by its key. It need not know whether the charge has arrived: the service
does.
"""

from typing import Any, Literal

import anyio
from pydantic import BaseModel

from ocean import Clog, Continue, Done, Failed, Ok, Outcome, Tick
from payment_client import Payments, charge_key

SMALL = 100
"""Up to this amount an order is shipped without a decision."""


class Order(BaseModel):
    """The run's row. There is none before the intention to charge is stored."""

    state: Literal["charging", "charged"] = "charging"
    amount: int
    items: list[str] = []
    remind_ms: int = 3_600_000
    """After this time a reminder, after as long again the fallback."""


def order_handler(payments: Payments, pause_s: float = 0, **options: Any) -> Clog:
    """Return the clog `order`. Packing takes `pause_s` for each item; `options` are those of `Clog`."""
    order = Clog("order", run_state=Order, **options)

    @order.on_advance
    async def advance(tick: Tick) -> Outcome:
        row: Order | None = (await tick.read(run=True)).run
        if row is None:
            await tick.write(run=Order(**tick.input))
            return Continue()
        if row.state == "charging":
            return await charge(tick, row)
        return await decide(tick, row)

    async def charge(tick: Tick, row: Order) -> Outcome:
        key = charge_key(tick.run_id)
        await tick.step("charge", lambda _: payments.charge(key, tick.run_id, row.amount))
        await tick.write(run=row.model_copy(update={"state": "charged"}))
        await tick.emit("order.charged", {"amount": row.amount})
        await tick.set_timer("reminder", after_ms=row.remind_ms)
        return Ok()

    async def decide(tick: Tick, row: Order) -> Outcome:
        """Act on the decision of a person, or on its absence. Other signals are ignored."""
        if tick.timer == "reminder":
            await tick.emit("order.reminded")
            await tick.set_timer("fallback", after_ms=row.remind_ms)
            return Ok()
        if tick.timer == "fallback":
            return await ship(tick, row, None) if row.amount <= SMALL else await give_up(tick, "not_approved")
        match tick.input:
            case {"type": "approve"}:
                return await ship(tick, row, tick.caller.actor)
            case {"type": "reject"}:
                return await give_up(tick, "rejected")
        return Ok()

    async def ship(tick: Tick, row: Order, approver: str | None) -> Outcome:
        """Pack, and hand over. The commit is what ships the order: until then it can be cancelled."""
        for number, item in enumerate(row.items, 1):
            await anyio.sleep(pause_s)
            await tick.stream("order.packing", {"item": item, "number": number, "of": len(row.items)})
        await tick.emit("order.shipped", {"approved_by": approver})
        return Done({"state": "shipped", "approved_by": approver})

    async def give_up(tick: Tick, code: str) -> Outcome:
        await refund(tick)
        return Failed({"code": code, "message": "the order was not approved; it is refunded"})

    async def refund(tick: Tick) -> None:
        await tick.step("refund", lambda _: payments.refund(charge_key(tick.run_id)))
        await tick.emit("order.refunded")

    @order.on_end
    async def end(tick: Tick) -> Outcome:
        """Refund what was charged or may have been charged. This tick has attempts of its own."""
        if (await tick.read(run=True)).run is not None:
            await refund(tick)
        return Ok()

    return order
