"""Tests of both orders in virtual time, with a stand-in for the payment service."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ocean import Abort, Clog, RunFailed, RunInfo
from ocean.testing import Outside, World, crash_everywhere, world
from order_flow import order_flow
from order_handler import order_handler
from payment_client import Payments, charge_key

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
Make = Callable[[Payments], Clog]
BOTH = pytest.mark.parametrize("make", [order_handler, order_flow], ids=["handler", "flow"])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def nothing(run_id: str) -> None:
    pass


class FakePayments:
    """Behaves as the service does. `while_charging` happens when a charge has arrived, before its response."""

    def __init__(self) -> None:
        self.outside = Outside()
        self.while_charging: Callable[[str], Awaitable[Any]] = nothing

    def renewed(self) -> Outside:
        """Begin an empty ledger."""
        self.outside, self.while_charging = Outside(), nothing
        return self.outside

    async def charge(self, key: str, order_id: str, amount: int) -> Any:
        if key in self.keys("refund"):
            raise Abort("the payment service refused the charge", code="voided")
        answer = await self.outside.call("charge", {"order": order_id, "amount": amount}, key=key, answer={"key": key})
        await self.while_charging(order_id)
        return answer

    async def refund(self, key: str) -> Any:
        return await self.outside.call("refund", {"key": key}, key=key, answer={"key": key})

    def keys(self, name: str) -> list[str | None]:
        return [call.key for call in self.outside.effects(name)]


async def ordered(w: World, amount: int = 500) -> RunInfo:
    body = {"amount": amount, "items": ["a book", "a lamp"], "remind_ms": HOUR_MS}
    clog_id = w.ocean.clogs[0].clog_id
    return await w.ocean.create_run(session_id="shop", clog_id=clog_id, run_id="order-1", input=body)


async def result_of(w: World) -> Any:
    try:
        return await w.ocean.result("order-1")
    except RunFailed as failed:
        return failed.error["code"]


async def events(w: World) -> list[str]:
    return [event.type for event in await w.ocean.read_events("order-1") if event.type.startswith("order.")]


@BOTH
async def test_an_approved_order_is_charged_once_and_shipped(make: Make) -> None:
    payments = FakePayments()
    async with world([make(payments)], outside=payments.outside) as w:
        await ordered(w)
        await w.drain()
        await w.ocean.signal("order-1", {"type": "approve"}, signal_id="kim-1", actor="kim")
        await w.ocean.signal("order-1", {"type": "approve"}, signal_id="kim-1", actor="kim")
        await w.drain()
        assert await result_of(w) == {"state": "shipped", "approved_by": "kim"}
        assert await events(w) == ["order.charged", "order.packing", "order.packing", "order.shipped"]
    assert (payments.keys("charge"), payments.keys("refund")) == ([charge_key("order-1")], [])


@BOTH
@pytest.mark.parametrize(
    ("amount", "result", "refunds"),
    [(80, {"state": "shipped", "approved_by": None}, 0), (500, "not_approved", 1)],
    ids=["a small order is shipped", "a large one is refunded"],
)
async def test_an_order_without_a_decision_gets_a_reminder_and_then_the_fallback(
    make: Make, amount: int, result: Any, refunds: int
) -> None:
    payments = FakePayments()
    async with world([make(payments)], outside=payments.outside) as w:
        await ordered(w, amount)
        await w.wait(HOUR_MS)
        assert await events(w) == ["order.charged", "order.reminded"]
        await w.wait(HOUR_MS)
        assert await result_of(w) == result
    assert (len(payments.keys("charge")), len(payments.keys("refund"))) == (1, refunds)


@BOTH
async def test_a_rejected_order_is_refunded(make: Make) -> None:
    payments = FakePayments()
    async with world([make(payments)], outside=payments.outside) as w:
        await ordered(w)
        await w.drain()
        await w.ocean.signal("order-1", {"type": "reject"})
        await w.drain()
        assert await result_of(w) == "rejected"
    assert payments.keys("refund") == [charge_key("order-1")]


async def is_shipped(w: World, payments: FakePayments) -> None:
    await ordered(w)
    await w.drain()
    await w.ocean.signal("order-1", {"type": "approve"}, signal_id="kim-1", actor="kim")
    await w.drain()


async def is_given_up(w: World, payments: FakePayments) -> None:
    await ordered(w)
    await w.wait(HOUR_MS)
    await w.wait(2 * HOUR_MS)


async def is_cancelled_while_it_waits(w: World, payments: FakePayments) -> None:
    await ordered(w)
    await w.drain()
    await w.ocean.cancel_run("order-1", reason="the customer has changed her mind")
    await w.wait(HOUR_MS)


async def is_cancelled_while_it_is_charged(w: World, payments: FakePayments) -> None:
    async def cancel(run_id: str) -> None:
        payments.while_charging = nothing
        await w.ocean.cancel_run(run_id)

    payments.while_charging = cancel
    await ordered(w)
    await w.drain()
    await w.wait(HOUR_MS)


Life = Callable[[World, FakePayments], Awaitable[None]]
RESULTS: dict[Life, Any] = {
    is_shipped: {"state": "shipped", "approved_by": "kim"},
    is_given_up: "not_approved",
    is_cancelled_while_it_waits: "cancelled",
    is_cancelled_while_it_is_charged: "cancelled",
}

MAY_DIFFER: dict[Life, tuple[str, ...]] = {
    is_cancelled_while_it_is_charged: ("events of *", "run * of *: row of *"),
}
"""Whether the result of a charge was known when its run was ended. The money must be the same."""


async def lived(w: World, payments: FakePayments, life: Life) -> None:
    """Live, and check the result and the money."""
    await life(w, payments)
    assert await result_of(w) == RESULTS[life]
    key = charge_key("order-1")
    assert payments.keys("charge") == [key]
    assert payments.keys("refund") == ([] if life is is_shipped else [key])


@BOTH
@pytest.mark.parametrize("life", RESULTS, ids=lambda life: life.__name__)
async def test_an_order_is_paid_if_it_is_shipped_and_refunded_once_if_not(make: Make, life: Life) -> None:
    payments = FakePayments()
    async with world([make(payments)], outside=payments.outside) as w:
        await lived(w, payments, life)


@BOTH
@pytest.mark.parametrize("life", RESULTS, ids=lambda life: life.__name__)
async def test_a_process_killed_at_any_place_loses_and_repeats_nothing(make: Make, life: Life) -> None:
    payments = FakePayments()

    async def scenario(w: World) -> None:
        await lived(w, payments, life)

    report = await crash_everywhere(
        lambda: [make(payments)], scenario, outside=payments.renewed, ignore=MAY_DIFFER.get(life, ()), kill_on_end=True
    )
    assert len(report.killed) > 10
