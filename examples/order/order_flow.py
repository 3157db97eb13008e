"""The same order as a flow: the charge declares how it is undone.

A step with `undo` is recorded as begun before its effect. If the flow fails or is ended from outside, `refund` is
called for every charge that may have happened: with its result, or with `UNKNOWN` if a crash or a cancellation left
the result unknown.
"""

from typing import Any

import anyio

from ocean import Abort, Clog, Flow, Input, RetryPolicy, SignalTimeout
from payment_client import Payments, charge_key

SMALL = 100
"""Up to this amount an order is shipped without a decision."""
PATIENT = RetryPolicy(max_attempts=10, backoff_ms=100)


def order_flow(payments: Payments, pause_s: float = 0, **options: Any) -> Clog:
    """Return the clog `order-flow`. Packing takes `pause_s` for each item; `options` are those of `Clog`."""
    order = Clog("order-flow", **options)

    @order.flow
    async def fulfil(flow: Flow, input: Any) -> Any:
        key = charge_key(flow.run_id)

        async def pack(_: str) -> None:
            for number, item in enumerate(input["items"], 1):
                await anyio.sleep(pause_s)
                await flow.stream("order.packing", {"item": item, "number": number, "of": len(input["items"])})

        def refund(_: str, receipt: Any) -> Any:
            """The receipt may be `UNKNOWN`: the service finds the charge by its key, if it has arrived."""
            return payments.refund(key)

        await flow.step(
            "charge", lambda _: payments.charge(key, flow.run_id, input["amount"]), retry=PATIENT, undo=refund
        )
        await flow.emit("order.charged", {"amount": input["amount"]})
        approver = await approval(flow, input)
        await flow.step("pack", pack)
        # The commit is what ships the order: until then it can be cancelled.
        await flow.emit("order.shipped", {"approved_by": approver})
        return {"state": "shipped", "approved_by": approver}

    async def approval(flow: Flow, input: Any) -> str | None:
        """Return the approver; None for a small order without a decision in time."""
        try:
            decision = await decided(flow, input)
        except SignalTimeout:
            await flow.emit("order.reminded")
            try:
                decision = await decided(flow, input)
            except SignalTimeout:
                if input["amount"] <= SMALL:
                    return None
                raise Abort("the order was not approved; it is refunded", code="not_approved") from None
        if decision.body["type"] == "reject":
            raise Abort("the order was not approved; it is refunded", code="rejected")
        return decision.actor

    async def decided(flow: Flow, input: Any) -> Input:
        return await flow.wait_for_signal(
            lambda body: isinstance(body, dict) and body.get("type") in ("approve", "reject"),
            timeout_ms=input.get("remind_ms", 3_600_000),
            name="decision",
        )

    return order
