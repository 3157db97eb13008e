"""A clog with its own contract: routes, error form and webhooks."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ocean import Clog, Delivery, Done, Incoming, OceanError, Ok, Outcome, Refuse, Reply, Tick

SECRET = "whsec_" + "c2hvcHNob3BzaG9wc2hvcHNob3BzaG9w"
NEXT_SECRET = "whsec_" + "bmV4dG5leHRuZXh0bmV4dG5leHRuZXh0"
LIMIT = 1_000


class Payment(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    mode: Literal["now", "later"] = "now"


class Page(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    tag: list[str] = []


def envelope(refusal: OceanError, incoming: Incoming) -> Reply:
    """An error form unlike Ocean's: other fields, other names, and one status that differs from the error's."""
    status = 400 if refusal.http_status == 413 else refusal.http_status
    error = {"code": f"SHOP_{refusal.code.upper()}", "text": refusal.message, "request_id": incoming.request_id}
    return Reply({"shop": "v1", "error": error}, status, {"X-Shop": "closed"})


def make_shop(**settings: Any) -> Clog:
    shop = Clog("shop", errors=envelope, **settings)

    @shop.on_advance
    async def advance(tick: Tick) -> Outcome:
        if tick.input == {"paid": True}:
            return Done("paid")
        return Ok()

    @shop.method
    async def pay_order(tick: Tick, payload: Any) -> Any:
        paid = [*((await tick.read(run=True)).run or []), payload]
        await tick.write(run=paid)
        if payload == "later":
            raise Refuse("not later", code="too_late", http_status=422)
        await tick.signal(tick.run_id, {"paid": True})
        return {"paid": paid, "by": tick.caller.actor}

    @shop.route("POST", "/shop/orders/{order_id}:pay", access="signal", session="checked", body=Payment, keyed=True,
                summary="Pay an order", most_bytes=LIMIT)  # fmt: skip
    async def pay(incoming: Incoming) -> Any:
        run = await incoming.run(incoming.path["order_id"])
        result = await incoming.ocean.call_clog(
            run_id=run.run_id,
            method="pay_order",
            payload=incoming.body.mode,
            caller=incoming.caller,
            request_key=incoming.request_key,
        )
        return Reply(result, 202, {"X-Shop": "open"})

    @shop.route("GET", "/shop/orders/{order_id}", access="read", session="checked", summary="Look at an order")
    async def look(incoming: Incoming) -> Any:
        run = await incoming.run(incoming.path["order_id"])
        return {"order": run.run_id, "status": run.status}

    @shop.route("GET", "/shop/orders", access="read", query=Page, summary="Find orders")
    async def find(incoming: Incoming) -> Any:
        return incoming.query

    @shop.route("GET", "/shop/projects/{project}/orders", access="read", session="project")
    async def of_project(incoming: Incoming) -> Any:
        return [incoming.path["project"]]

    @shop.route("POST", "/shop/echo", access="open", content_type=None)
    def echo(incoming: Incoming) -> Any:
        """A plain function, which runs in a thread."""
        return Reply(incoming.raw, 200, {"Content-Type": incoming.headers.get("content-type", "text/plain")})

    @shop.route("POST", "/shop/json", access="signal")
    async def strict(incoming: Incoming) -> Any:
        return incoming.json()

    @shop.route("POST", "/shop/do/{what}", access="signal")
    async def do(incoming: Incoming) -> Any:
        match incoming.path["what"]:
            case "break":
                raise RuntimeError("a secret of the shop")
            case "refuse":
                raise Refuse("out of stock", code="no_stock", http_status=410)
            case "nonsense":
                return {"a": {1, 2}}
            case "header":
                return Reply(None, headers={"X-Split": "a\r\nX-More: b"})
            case "nothing":
                return Reply(status=204)
        return incoming.access.scopes == frozenset()

    return shop


def make_till(secrets: Any = "env:PAID_SECRET", **settings: Any) -> Clog:
    """A clog without routes whose runs wait for a payment that a webhook reports."""
    clog = Clog("till")

    @clog.on_advance
    async def advance(tick: Tick) -> Outcome:
        return Done(tick.input) if isinstance(tick.input, dict) and "paid" in tick.input else Ok()

    @clog.webhook("paid", secrets=secrets, **settings)
    async def paid(tick: Tick, delivery: Delivery) -> Any:
        match delivery.body:
            case {"break": True}:
                raise RuntimeError("the till is broken")
            case {"refuse": True}:
                await tick.emit("refused", delivery.id)
                raise Refuse("no such order", code="no_order", http_status=422)
        rows = await tick.read(global_=True)
        await tick.write(global_=(rows.global_ or 0) + 1)
        await tick.signal(delivery.body["order"], {"paid": delivery.body["sum"], "sent_at": delivery.sent_at})
        return {"counted": (rows.global_ or 0) + 1, "by": tick.caller.actor}

    @clog.method
    async def count(tick: Tick, payload: Any) -> Any:
        return (await tick.read(global_=True)).global_

    return clog
